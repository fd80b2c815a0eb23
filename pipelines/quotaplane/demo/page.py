"""The HTML template of the demo's report."""

from __future__ import annotations

from string import Template
from typing import Final

PAGE: Final = Template("""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>quotaplane demo</title>
<script>$plotly</script>
<style>
  :root { --ink: #1f2933; --quiet: #66758a; --line: #e1e6ed; --paper: #f5f7fa; }
  * { box-sizing: border-box; }
  body { margin: 0; background: var(--paper); color: var(--ink);
         font: 15px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif; }
  main { max-width: 1240px; margin: 0 auto; padding: 32px 24px 64px; }
  h1 { font-size: 28px; margin: 0; letter-spacing: -0.01em; }
  h2 { font-size: 20px; margin: 40px 0 4px; }
  h3 { font-size: 16px; margin: 0; }
  p { margin: 4px 0 0; }
  .quiet, .tile span { color: var(--quiet); font-size: 13px; }
  .tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(130px, 1fr)); gap: 12px;
           margin: 24px 0 0; }
  .tile { background: white; border: 1px solid var(--line); border-radius: 10px;
          padding: 12px 16px; }
  .tile b { display: block; font-size: 22px; font-variant-numeric: tabular-nums; }
  .cards { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 16px;
           grid-auto-flow: dense; }
  .card { background: white; border: 1px solid var(--line); border-radius: 10px;
          padding: 16px 18px 6px; display: flex; flex-direction: column; }
  .card > div { margin-top: auto; }
  .wide { grid-column: 1 / -1; }
  .card ul { list-style: none; margin: 8px 0 4px; padding: 0; font-size: 14px; }
  .card li { display: flex; gap: 8px; align-items: baseline; }
  .card li em { flex: none; font-style: normal; font-size: 12px; font-weight: 600; color: white;
                background: #8895a7; border-radius: 4px; padding: 0 6px; }
  .good { color: #22774a; } .bad { color: #b42318; }
  .legend { position: sticky; top: 0; z-index: 2; background: var(--paper); margin: 12px 0 16px;
            padding: 10px 0; display: flex; flex-wrap: wrap; gap: 6px 18px; font-size: 13px;
            border-bottom: 1px solid var(--line); }
  .legend i { display: inline-block; width: 18px; height: 4px; border-radius: 2px;
              margin-right: 6px; vertical-align: middle; }
  .legend .dash { height: 0; border-top: 2px dashed #1f2933; border-radius: 0; }
  .legend .dot { height: 0; border-top: 2px dotted #66758a; border-radius: 0; }
  .legend .thin { height: 1px; background: #66758a; border-radius: 0; }
  .scroll { overflow-x: auto; background: white; border: 1px solid var(--line);
            border-radius: 10px; margin-top: 12px; }
  table { border-collapse: collapse; width: 100%; font-size: 13px;
          font-variant-numeric: tabular-nums; }
  th, td { text-align: left; padding: 7px 14px; border-bottom: 1px solid var(--line);
           white-space: nowrap; }
  tr:last-child td { border-bottom: 0; }
  th { color: var(--quiet); font-weight: 600; }
  details { margin-top: 10px; font-size: 13px; color: var(--quiet); }
  pre { background: white; border: 1px solid var(--line); border-radius: 10px; padding: 12px 16px;
        overflow-x: auto; color: var(--ink); }
  .plain { background: white; border: 1px solid var(--line); border-radius: 10px;
           padding: 12px 12px 4px; margin-top: 12px; }
  @media (max-width: 860px) { .cards { grid-template-columns: minmax(0, 1fr); } }
</style>
</head>
<body>
<main>
<h1>quotaplane demo</h1>
<p>One Spark Structured Streaming job divided each group's quota among the brokers of a simulated
cluster, second by second. Reports came in and limits went out as bytes through Delta tables, as
they would through Kafka.</p>
<div class="tiles">
$tiles
</div>
<h2>How far from fair</h2>
<p class="quiet">The worst-off broker of each group: green is within 10&nbsp;% of its max-min fair
share, as PIP-82 requires. A diamond is a change; the coloured stretch after it is the time for
which the cluster was unfair. Negative seconds are before the first limits.</p>
<div class="plain">$convergence</div>
<h2>Group by group</h2>
<p class="quiet">Above: the usage of all brokers, stacked, with quota and demand. Below: usage
(thick) and limit (thin) of each broker. Numbers mark changes; the grey strip is the time before the
first limits.</p>
<div class="legend">
$legend
<span><i class="thin"></i>its limit</span>
<span><i class="dash"></i>quota</span>
<span><i class="dot"></i>demand together</span>
</div>
<div class="cards">
$cards
</div>
$audit
</main>
</body>
</html>
""")
