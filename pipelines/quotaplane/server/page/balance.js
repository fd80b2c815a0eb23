// What the balancer decided: moves, splits, and what it left where it is.
import { html } from "./vendor/preact-htm.js";
import { query, useAnswer } from "./api.js";
import { NOTHING, amount } from "./format.js";
import { Buttons, Empty, Failure, Pager, pageOf, Table, Time } from "./parts.js";

const RANGES = [
  ["1h", "1 h"],
  ["1d", "1 day"],
  ["7d", "7 days"],
];
const PAGE = 50;
const text = (key) => (row) => (row[key] === null || row[key] === undefined ? NOTHING : html`<bdi class="long">${row[key]}</bdi>`);

const COLUMNS = [
  { title: "Round", cell: (row) => html`<${Time} at=${row.round_at} />` },
  { title: "Decision", cell: (row) => html`<span class="tag">${row.kind}</span>` },
  { title: "What", cell: text("subject") },
  { title: "From", cell: text("source") },
  { title: "To", cell: text("target") },
  { title: "Load", isNumber: true, cell: (row) => (row.bytes_per_s === null ? NOTHING : `${amount(row.bytes_per_s, "publish_bytes")}/s`) },
  { title: "Reason", cell: text("reason") },
  { title: "Executed", hint: "Whether the plan was for execution", cell: (row) => (row.enforced ? "for execution" : "proposed") },
];

export function Balance({ options, setOptions }) {
  const { range = "1d", offset = "0" } = options;
  const { content, error, reload } = useAnswer(`balance${query({ since: range, limit: PAGE + 1, offset })}`, 10000);
  const { rows, more } = pageOf(content?.rows ?? [], PAGE);
  return html`
    <h1>Balance</h1>
    <div class="tools">
      <${Buttons} label="Time" value=${range} options=${RANGES} onChange=${(r) => setOptions({ range: r, offset: null })} />
    </div>
    <${Failure} error=${error} retry=${reload} />
    ${content && rows.length === 0 && html`<${Empty}>
      <p>The balancer decided nothing in this time. It is a job of its own: <code>quotaplane run balance --conf FILE</code>.</p>
    </${Empty}>`}
    ${rows.length > 0 && html`
      <${Table} label="Decisions of the balancer" columns=${COLUMNS} rows=${rows} />
      <${Pager} total=${null} shown=${rows.length} more=${more} offset=${Number(offset)} size=${PAGE} go=${(o) => setOptions({ offset: o || null })} />`}
  `;
}
