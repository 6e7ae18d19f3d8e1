"""Plots as SVG, readable on light and on dark paper: lines over a logarithmic time axis, and pairs of bars on a logarithmic scale."""
import math
from html import escape

STYLE = """
    text { font-family: system-ui, -apple-system, 'Segoe UI', 'Noto Sans', Helvetica, Arial, sans-serif; }
    .title { fill: #1f2328; font-weight: 600; font-size: 15px; }
    .label { fill: #1f2328; font-size: 12.5px; }
    .note { fill: #59636e; font-size: 12px; }
    .grid { stroke: #d0d7de; stroke-width: 1; }
    .line { fill: none; stroke-width: 2.4; }
    .a { stroke: #d4721a; fill: #d4721a; }
    .b { stroke: #3b6fb6; fill: #3b6fb6; }
    .line.a, .line.b { fill: none; }
    @media (prefers-color-scheme: dark) {
      .title, .label { fill: #e6edf3; }
      .note { fill: #9198a1; }
      .grid { stroke: #30363d; }
      .a { stroke: #e8964a; fill: #e8964a; }
      .b { stroke: #6ea8ff; fill: #6ea8ff; }
      .line.a, .line.b { fill: none; }
    }
"""
KINDS = ("a", "b")


def number(value):
    """At most three digits that matter, and a point only where there is something behind it."""
    if value == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{digits}f}".rstrip("0").rstrip(".") if digits else f"{value:,.0f}"


def picture(width, height, about, parts):
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="{escape(about, quote=True)}">'
    return "\n".join([head, f"  <style>{STYLE}  </style>", *(f"  {part}" for part in parts), "</svg>", ""])


def text(x, y, words, kind="label", anchor="start"):
    return f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(words)}</text>'


def line(x1, y1, x2, y2):
    return f'<line class="grid" x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"/>'


def powers(least, most):
    """The powers of ten from one that is not above `least` to one that is not below `most`."""
    return [10.0 ** n for n in range(math.floor(math.log10(least)), math.ceil(math.log10(most)) + 1)]


def growth(title, unit, series):
    """For each (name, times in seconds): how many there were by when."""
    width, height, left, right, top, bottom = 760, 320, 60, 30, 66, 44
    times = [max(at, 0.01) for _, each in series for at in each]
    ticks = powers(min(times), max(times))
    most = max(len(each) for _, each in series)
    x = lambda at: left + (width - left - right) * math.log10(max(at, ticks[0]) / ticks[0]) / math.log10(ticks[-1] / ticks[0])
    y = lambda count: height - bottom - (height - top - bottom) * count / most
    parts = [text(left, 22, title, "title")]
    for tick in ticks:
        parts += [line(x(tick), top, x(tick), height - bottom), text(x(tick), height - bottom + 18, number(tick), "note", "middle")]
    for part in (0, 0.25, 0.5, 0.75, 1):
        parts += [line(left, y(most * part), width - right, y(most * part)),
                  text(left - 8, y(most * part) + 4, number(most * part), "note", "end")]
    parts.append(text(width - right, height - 8, unit, "note", "end"))
    for place, (kind, (name, each)) in enumerate(zip(KINDS, series)):
        points = [(x(max(min(each), 0.01)), y(0))]
        for count, at in enumerate(sorted(each), 1):
            points += [(x(max(at, 0.01)), points[-1][1]), (x(max(at, 0.01)), y(count))]
        path = "M" + " L".join(f"{a:.1f} {b:.1f}" for a, b in points)
        parts.append(f'<path class="line {kind}" d="{path}"/>')
        at = left + place * 330
        parts += [f'<rect class="{kind}" x="{at}" y="36" width="12" height="12"/>',
                  text(at + 18, 47, f"{name}: all {len(each)} after {number(max(each))} s")]
    return picture(width, height, f"{title}: " + ", ".join(f"{name} {number(max(each))} s" for name, each in series), parts)


def pairs(title, names, rows):
    """For each (label, unit, value of the first, value of the second): two bars, each row on its own scale, from a ten thousandth of the larger."""
    width, left, right, step, top = 760, 250, 160, 46, 66
    height = top + step * len(rows) + 16
    parts = [text(16, 22, title, "title")]
    for place, (kind, name) in enumerate(zip(KINDS, names)):
        at = 16 + place * 200
        parts += [f'<rect class="{kind}" x="{at}" y="36" width="12" height="12"/>', text(at + 18, 47, name)]
    for row, (label, unit, *values) in enumerate(rows):
        middle = top + step * row + step / 2
        parts.append(text(left - 12, middle + 4, label, "label", "end"))
        most = max(values)
        for place, (kind, value) in enumerate(zip(KINDS, values)):
            share = max(0.004, 1 + math.log10(max(value, most / 1e4) / most) / 4)
            across, down = (width - left - right) * share, middle - 15 + 16 * place
            parts += [f'<rect class="{kind}" x="{left}" y="{down:g}" width="{across:.1f}" height="13" rx="2"/>',
                      text(left + across + 8, down + 11, f"{number(value)} {unit}".strip(), "note")]
    return picture(width, height, f"{title}: " + "; ".join(f"{row[0]} {number(row[2])} against {number(row[3])} {row[1]}" for row in rows), parts)
