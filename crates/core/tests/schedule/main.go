// Writes instants.txt: what robfig/cron v3.0.1, the cron library of the existing operator, makes of many schedules in many
// zones, around clock changes, leap days and the turn of the year, and which schedules it refuses. The pure test
// `schedule::instants` of firesteel-core expects the same of ours.
//
//	cd crates/core/tests/schedule && go run . > instants.txt
//
// Each line is a schedule in quotes, and the seconds from `start` to the instants that follow, or `error`.
package main

import (
	"bufio"
	"fmt"
	"math/rand"
	"os"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata"

	"github.com/robfig/cron/v3"
)

// Zones with each kind of offset and clock change.
var zones = []string{
	"UTC", "Europe/Berlin", "Europe/London", "Europe/Dublin", "America/New_York", "America/Los_Angeles",
	"America/Sao_Paulo", "America/Havana", "America/Santiago", "America/Asuncion", "Asia/Beirut", "Africa/Cairo", // midnight
	"Asia/Tehran", "Atlantic/Azores", "America/Scoresbysund", "America/St_Johns", // midnight, a minute past, half hours
	"Australia/Lord_Howe", "Australia/Sydney", "Australia/Eucla", "Pacific/Chatham", "Antarctica/Troll", // 30 min, 45 min, 2 h
	"Asia/Kathmandu", "Asia/Kolkata", "Pacific/Marquesas", "Pacific/Kiritimati", "Etc/GMT+12",
	"Asia/Pyongyang", "America/Caracas", "Europe/Istanbul", "Europe/Volgograd", "Africa/Juba", // zones that moved
	"Pacific/Apia", "Pacific/Fakaofo", // a day that never was
}

// Schedules that meet clock changes.
var around = []string{
	"* * * * *", "*/15 * * * *", "30 * * * *", "0 0 * * *", "30 0 * * *", "0 1 * * *", "30 1 * * *", "15 2 * * *",
	"30 2 * * *", "0 3 * * *", "0 23 * * *", "0 */6 * * *", "45 0-3 * * *", "0 0 * * 0", "30 2 * * sun", "0 0 1 * *",
	"@hourly", "@daily", "TZ=Asia/Kolkata 30 5 * * *",
}

// Schedules of every form.
var forms = []string{
	"@yearly", "@annually", "@monthly", "@weekly", "@midnight", "@every 90m", "@every 1h30m10s", "@every 500ms", "@every 1.9s",
	"@every -5m", "@every 0", "@every 26280h", "0 0 29 2 *", "0 0 29 feb ?", "0 0 31 * *", "0 0 30 2 *", "0 0 31 4,6,9,11 *",
	"0 0 13 * 5", "0 0 13 * *", "0 0 */1 * 5", "0 0 */2 * 5", "0 0 ? * 5", "0 0 13 * ?", "0 0 13 * */2", "0 0 13 * */1",
	"5,35 9-17 * * MON-FRI", "1-59/7 2/5 * JAN,jul *", "59 23 31 12 *", "0 12 1-7 * Tue", "*/59 */23 */30 */11 */6",
	"0 0 1 1 0-6", "*-9 * * * *", "+5 +4 * * *", "007 08 * * *", ",5, 3 * * *", ", * * * *", "* , * * *", "* * , * *",
	"* * * , *", "* * * * ,", "0 0 * * 0,6", "0 0 1,15 * 1", "0 0 31 1-2/1 *", "* * 31 2 1",
	"CRON_TZ=America/New_York 30 2 * * *", "TZ=Local 0 6 * * *", "TZ= 0 6 * * *", "CRON_TZ=UTC    @daily", " @daily ",
	"  0   3 *\t* * ", "TZ=Australia/Lord_Howe @every 1h",
}

// Schedules that are wrong, or look so.
var odd = []string{
	"", " ", "*", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * 32 * *", "* * * 0 *", "* * * 13 *",
	"* * * * 7", "* * * * sun-sat", "* * * * sat-sun", "* * * * monday", "-1 * * * *", "1-2-3 * * * *", "5-1 * * * *",
	"*/0 * * * *", "*/-1 * * * *", "*/x * * * *", "1/2/3 * * * *", "a * * * *", "1.5 * * * *", "1- * * * *", "-5 * * * *",
	"*/99999999999999999999 * * * *", "99999999999999999999 * * * *", "*/100 * * * *", "1_0 * * * *", "** * * * *",
	"*5 * * * *", "?/15 * * * *", "?-3/15 * * * *", "@", "@Daily", "@every", "@every ", "@every  5m", "@every 5", "@every 5m ",
	"@every 5d", "@every 1h 5m", "@every 9223372036s", "@every 99999999999h", "@reboot", "@daily x", "L * * * *", "0 0 L * *",
	"0 0 15W * *", "0 0 * * 5#3", "TZ=Nowhere/Land * * * * *", "TZ=europe/berlin * * * * *", "CRON_TZ=UTC", "TZ=UTC", "TZ=",
	"TZ=UTC * * * *", " TZ=UTC * * * * *", "TZ=UTC\t* * * * *", "tz=UTC * * * * *", "CRON_TZ=UTC TZ=UTC * * * * *",
	"TZ=../UTC * * * * *", "TZ=/etc/localtime * * * * *", "TZ=Etc/UTC * * * * *", "TZ=utc * * * * *", "TZ=EST5EDT 0 3 * * *",
}

// As the existing operator reads spec.schedule and spec.timeZone. Version 3.0.1 panics where there is a zone and nothing else.
func parse(spec, zone string) (schedule cron.Schedule, err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			err = fmt.Errorf("%v", panicked)
		}
	}()
	if _, err := time.LoadLocation(zone); err != nil {
		return nil, err
	}
	if !strings.HasPrefix(spec, "CRON_TZ=") && !strings.HasPrefix(spec, "TZ=") {
		spec = fmt.Sprintf("CRON_TZ=%s %s", zone, spec)
	}
	return cron.ParseStandard(spec)
}

type table struct {
	out *bufio.Writer
}

func (t table) at(zone string, start time.Time) {
	fmt.Fprintf(t.out, "zone %s\nstart %s\n", zone, start.UTC().Format(time.RFC3339Nano))
}

func (t table) line(spec, zone string, start time.Time, count int) {
	fmt.Fprint(t.out, strconv.QuoteToASCII(spec))
	defer fmt.Fprintln(t.out)
	schedule, err := parse(spec, zone)
	if err != nil {
		fmt.Fprint(t.out, " error")
		return
	}
	at := start
	for i := 0; i < count; i++ {
		at = schedule.Next(at)
		if at.IsZero() {
			fmt.Fprint(t.out, " never")
			return
		}
		fmt.Fprint(t.out, " ", at.Unix()-start.Unix())
	}
}

func main() {
	// What `Local` means.
	time.Local = time.UTC
	t := table{bufio.NewWriter(os.Stdout)}
	defer t.out.Flush()
	for _, zone := range zones {
		location, err := time.LoadLocation(zone)
		if err != nil {
			panic(err)
		}
		for _, change := range changes(location) {
			start := change.Add(-25*time.Hour - 17*time.Second)
			t.at(zone, start)
			for _, spec := range around {
				if hangs(zone, spec) {
					continue
				}
				if spec == "* * * * *" || spec == "*/15 * * * *" {
					// Close to the change.
					t.line(spec, zone, start, 1)
					continue
				}
				t.line(spec, zone, start, 4)
			}
			t.at(zone, change.Add(-61*time.Second))
			t.line("* * * * *", zone, change.Add(-61*time.Second), 3)
			t.line("*/15 * * * *", zone, change.Add(-61*time.Second), 3)
			t.line("30 2 * * *", zone, change.Add(-61*time.Second), 2)
			t.line("0 0 * * *", zone, change.Add(-61*time.Second), 2)
		}
	}
	starts := []time.Time{
		time.Date(2024, 2, 27, 23, 59, 59, 999999999, time.UTC),
		time.Date(2026, 12, 31, 11, 30, 0, 1, time.UTC),
		time.Date(2096, 2, 28, 12, 0, 0, 0, time.UTC),
	}
	for _, zone := range []string{"UTC", "America/New_York", "Asia/Kathmandu", "Pacific/Chatham", "Asia/Beirut"} {
		for _, start := range starts {
			t.at(zone, start)
			for _, spec := range forms {
				t.line(spec, zone, start, 3)
			}
		}
	}
	start := time.Date(2026, 11, 18, 9, 0, 0, 0, time.UTC)
	t.at("Europe/Berlin", start)
	for _, spec := range odd {
		t.line(spec, "Europe/Berlin", start, 1)
	}
	for _, zone := range []string{"", "Local", "UTC", "utc", "Nowhere/Land", "Europe/berlin", "Europe/Berlin ", "CET", "US/Eastern", "GMT+1", "+01:00"} {
		t.at(zone, start)
		t.line("0 3 * * *", zone, start, 1)
	}
	random(t)
}

// Whether the module searches for ever: it goes from day to day, and these zones have no 30 December 2011.
func hangs(zone, spec string) bool {
	fields := strings.Fields(spec)
	isPicky := len(fields) == 5 && (fields[2] != "*" || fields[4] != "*")
	return isPicky && (zone == "Pacific/Apia" || zone == "Pacific/Fakaofo")
}

// Clock changes of a zone in years with many kinds of them.
func changes(location *time.Location) []time.Time {
	var found []time.Time
	for _, years := range [][2]int{{2010, 2012}, {2015, 2016}, {2018, 2018}, {2026, 2026}, {2040, 2040}} {
		at := time.Date(years[0], 1, 1, 0, 0, 0, 0, time.UTC)
		for {
			_, end := at.In(location).ZoneBounds()
			if end.IsZero() || end.UTC().Year() > years[1] || at.Year() > years[1] {
				break
			}
			if !end.After(at) {
				// Rules for the far future may give the change before again.
				at = at.Add(24 * time.Hour)
				continue
			}
			found = append(found, end)
			at = end
		}
	}
	return found
}

func random(t table) {
	r := rand.New(rand.NewSource(20261118))
	part := func(min, max int, names []string) string {
		value := func(n int) string {
			if names != nil && r.Intn(3) == 0 {
				return names[n-min]
			}
			return strconv.Itoa(n)
		}
		switch r.Intn(8) {
		case 0, 1, 2:
			return "*"
		case 3:
			return "*/" + strconv.Itoa(1+r.Intn(max))
		case 4:
			low := min + r.Intn(max-min+1)
			high := low + r.Intn(max-low+1)
			return value(low) + "-" + value(high)
		case 5:
			return value(min+r.Intn(max-min+1)) + "/" + strconv.Itoa(1+r.Intn(max))
		case 6:
			return value(min+r.Intn(max-min+1)) + "," + value(min+r.Intn(max-min+1))
		default:
			return value(min + r.Intn(max-min+1))
		}
	}
	months := strings.Fields("jan feb mar apr may jun jul aug sep oct nov dec")
	days := strings.Fields("sun mon tue wed thu fri sat")
	for i := 0; i < 600; i++ {
		zone := zones[r.Intn(len(zones))]
		start := time.Unix(r.Int63n(2_500_000_000)+1_000_000_000, r.Int63n(1_000_000_000))
		if i%2 == 0 {
			start = start.Truncate(time.Second)
		}
		t.at(zone, start)
		for j := 0; j < 3; j++ {
			spec := strings.Join([]string{part(0, 59, nil), part(0, 23, nil), part(1, 31, nil), part(1, 12, months), part(0, 6, days)}, " ")
			if !hangs(zone, spec) {
				t.line(spec, zone, start, 4)
			}
		}
	}
}
