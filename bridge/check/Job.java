import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.SparkConf;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.JavaFutureAction;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.resource.ExecutorResourceRequests;
import org.apache.spark.resource.ResourceProfile;
import org.apache.spark.resource.ResourceProfileBuilder;
import org.apache.spark.resource.TaskResourceRequests;
import scala.collection.immutable.Map$;

/** A Spark application that executes commands from its standard input, one per line, and answers with lines "JOB ...". */
public class Job {
    private static JavaSparkContext context;
    private static int made;

    public static void main(String[] arguments) throws Exception {
        context = new JavaSparkContext(new SparkConf());
        say("ready");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null;) {
            String[] words = line.trim().split(" ");
            try {
                perform(words);
            } catch (Exception e) {
                say("failed " + words[0] + ": " + String.valueOf(e.getMessage()).replace('\n', ' '));
            }
            if (words[0].equals("end")) {
                return;
            }
        }
    }

    private static void perform(String[] words) throws Exception {
        switch (words[0]) {
            case "count":
                say("counted " + context.parallelize(Arrays.asList(1, 2, 3, 4, 5, 6, 7, 8), 4).map(x -> x * x).count());
                break;
            case "hold":
                // Two tasks that run until the file exists; each creates a file when it begins.
                String file = words[1];
                say("held " + context.parallelize(Arrays.asList(1, 2), 2).map(x -> {
                    String attempt = TaskContext.get().partitionId() + "-" + TaskContext.get().taskAttemptId();
                    new File(file + ".begun." + attempt).createNewFile();
                    while (!new File(file).exists()) {
                        Thread.sleep(50);
                    }
                    return x;
                }).count());
                break;
            case "want":
                // With the time of the request: its effects are measured elsewhere.
                long asked = System.currentTimeMillis();
                boolean taken = context.sc().requestTotalExecutors(Integer.parseInt(words[1]), 0, Map$.MODULE$.<String, Object>empty());
                say("want " + taken + " " + asked);
                break;
            case "kill":
                say("killed " + context.sc().killExecutor(words[1]));
                break;
            case "profiles":
                // This many new profiles, each wanted for a moment.
                List<ResourceProfile> profiles = new ArrayList<>();
                for (int i = 0; i < Integer.parseInt(words[1]); i++) {
                    ExecutorResourceRequests size = new ExecutorResourceRequests().memory(600 + made++ + "m").cores(1);
                    profiles.add(new ResourceProfileBuilder().require(size).require(new TaskResourceRequests().cpus(1)).build());
                }
                wantBriefly(profiles);
                say("profiles");
                break;
            case "vendorless":
                ExecutorResourceRequests gpu = new ExecutorResourceRequests().cores(1).resource("gpu", 1, "", "");
                TaskResourceRequests task = new TaskResourceRequests().cpus(1).resource("gpu", 1);
                wantBriefly(Arrays.asList(new ResourceProfileBuilder().require(gpu).require(task).build()));
                say("vendorless");
                break;
            case "again":
                context.stop();
                context = new JavaSparkContext(new SparkConf());
                say("again");
                break;
            case "end":
                context.stop();
                say("ended");
                List<String> holders = new ArrayList<>();
                for (Thread thread : Thread.getAllStackTraces().keySet()) {
                    if (!thread.isDaemon() && thread != Thread.currentThread()) {
                        holders.add(thread.getName());
                    }
                }
                say("held up by " + holders);
                break;
            default:
                say("does not know " + words[0]);
        }
    }

    /** Long enough for Spark to ask for executors, which it does after a second. */
    private static void wantBriefly(List<ResourceProfile> profiles) throws Exception {
        List<JavaFutureAction<Long>> jobs = new ArrayList<>();
        for (ResourceProfile profile : profiles) {
            jobs.add(context.parallelize(Arrays.asList(1, 2), 1).withResources(profile).countAsync());
        }
        Thread.sleep(3000);
        for (JavaFutureAction<Long> job : jobs) {
            job.cancel(true);
        }
    }

    private static synchronized void say(String text) {
        System.out.println("JOB " + text);
        System.out.flush();
    }
}
