// Questions to the history: choose one, see its rows, take them along as CSV.
import { html, useState } from "./vendor/preact-htm.js";
import { query, useAnswer } from "./api.js";
import { NOTHING, whole } from "./format.js";
import { Buttons, Failure, Table, Time } from "./parts.js";

const RANGES = [
  ["1h", "1 h"],
  ["1d", "1 day"],
  ["7d", "7 days"],
  ["30d", "30 days"],
];
const MOST = 1000;
const isTime = (column, value) => typeof value === "string" && /(_at|^since|^until)$/.test(column);

function cell(column, value) {
  if (value === null) return NOTHING;
  if (isTime(column, value)) return html`<${Time} at=${value} />`;
  if (typeof value === "number" && !Number.isInteger(value)) return String(+value.toPrecision(5));
  return html`<bdi class="long">${String(value)}</bdi>`;
}

/** A cell of a CSV file; one that a spreadsheet would take for a formula is kept a text. */
function csvCell(value) {
  let text = value === null ? "" : String(value);
  if (typeof value === "string" && /^'*[=+\-@\t\r]/.test(text)) text = `'${text}`;
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function download(name, content) {
  const lines = [content.columns, ...content.rows].map((row) => row.map(csvCell).join(","));
  const url = URL.createObjectURL(new Blob([lines.join("\r\n"), "\r\n"], { type: "text/csv" }));
  const link = Object.assign(document.createElement("a"), { href: url, download: `${name}.csv` });
  link.click();
  URL.revokeObjectURL(url);
}

function Answer({ audit, range, given }) {
  const path = `audits/${audit.name}${query({ since: range, set: given, limit: MOST })}`;
  const { content, error, isLoading, reload } = useAnswer(path);
  if (error) return html`<${Failure} error=${error} retry=${reload} />`;
  if (!content || isLoading) return html`<p role="status">Reading the history…</p>`;
  const columns = content.columns.map((column, i) => ({
    title: column.replaceAll("_", " "),
    isNumber: typeof content.rows[0]?.[i] === "number",
    cell: (row) => cell(column, row[i]),
  }));
  const { violations, total } = content;
  return html`
    <p role="status">
      ${audit.finds_violations && (violations
        ? html`<b class="bad">${whole(violations)} ${violations === 1 ? "violation" : "violations"}.</b> `
        : html`<b class="good">No violation.</b> `)}
      ${whole(total)} ${total === 1 ? "row" : "rows"}${total > content.rows.length ? `, the first ${whole(content.rows.length)} are shown` : ""}.
      ${total > 0 && html` <button type="button" class="quiet" onClick=${() => download(audit.name, content)}>Download CSV</button>`}
    </p>
    ${total > 0 && html`<${Table} label=${audit.question} columns=${columns} rows=${content.rows} />`}`;
}

function Parameters({ audit, given, onChange }) {
  const [values, setValues] = useState(() => Object.fromEntries((given ?? "").split(",").filter(Boolean).map((p) => p.split("="))));
  const names = Object.entries(audit.parameters);
  if (!names.length) return null;
  const submit = (event) => {
    event.preventDefault();
    onChange(Object.entries(values).filter(([, v]) => v !== "").map(([n, v]) => `${n}=${v}`).join(","));
  };
  return html`<form class="tools" onSubmit=${submit}>
    ${names.map(([name, about]) => html`<label class="choice" title=${about.meaning}><span>${name.replaceAll("_", " ")}</span>
      <input type="number" step="any" min="0" placeholder=${about.default} value=${values[name] ?? ""}
        onInput=${(e) => setValues({ ...values, [name]: e.target.value })} /></label>`)}
    <button type="submit">Ask</button>
  </form>`;
}

export function Audits({ options, setOptions }) {
  const { content, error, reload } = useAnswer("audits");
  const { audit: name, range = "1d", set = "" } = options;
  const audit = content?.audits.find((a) => a.name === name);
  return html`
    <h1>Audits</h1>
    <${Failure} error=${error} retry=${reload} />
    <div class="columns audits">
      <ul class="list">
        ${content?.audits.map((a) => html`<li key=${a.name}>
          <a href=${`#/audits${query({ audit: a.name, range: options.range })}`} aria-current=${a.name === name ? "true" : null}>
            <b>${a.name.replaceAll("_", " ")}</b> <span>${a.question}</span>
            ${a.finds_violations && html` <span class="tag">finds violations</span>`}
          </a>
        </li>`)}
      </ul>
      <div>
        ${!audit && content && html`<p class="hint">Choose a question. <code>quotaplane audit NAME</code> asks the same in a terminal.</p>`}
        ${audit && html`
          <h2>${audit.question}</h2>
          <div class="tools"><${Buttons} label="Time" value=${range} options=${RANGES} onChange=${(r) => setOptions({ range: r })} /></div>
          <${Parameters} key=${audit.name} audit=${audit} given=${set} onChange=${(s) => setOptions({ set: s })} />
          <${Answer} key=${`${audit.name} ${range} ${set}`} audit=${audit} range=${range} given=${set} />`}
      </div>
    </div>`;
}
