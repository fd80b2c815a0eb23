// Pieces that several views have: tables, pages of rows, refusals, dialogs.
import { html, useEffect, useRef, useState } from "./vendor/preact-htm.js";
import { query } from "./api.js";
import { STANDING } from "./declared.js";
import { time, utc, whole } from "./format.js";

/** The address of a group's view. */
export const groupLink = (group, dimension) =>
  `#/groups/${encodeURIComponent(group)}${query({ dimension })}`;

/** A time with its UTC in a tooltip. */
export const Time = ({ at }) => html`<time datetime=${utc(at)} title=${utc(at)}>${time(at)}</time>`;

/** A refusal or a failure, with what can be done. */
export function Failure({ error, retry }) {
  if (!error) return null;
  return html`<div class="failure" role="alert">
    <span>${error.message}</span>
    ${retry && html`<button type="button" onClick=${retry}>Try again</button>`}
  </div>`;
}

/** What to do where there is nothing to show. */
export const Empty = ({ children }) => html`<div class="empty">${children}</div>`;

/** A table; `columns` are `{title, hint, isNumber, cell(row)}`. */
export function Table({ label, columns, rows, rowClass = () => "", keyOf }) {
  return html`<div class="scrolls" tabindex="0" role="region" aria-label=${label}>
    <table>
      <caption class="unseen">${label}</caption>
      <thead>
        <tr>
          ${columns.map(
            (c) => html`<th scope="col" class=${c.isNumber ? "number" : ""} title=${c.hint}>${c.title}</th>`,
          )}
        </tr>
      </thead>
      <tbody>
        ${rows.map(
          (row, i) => html`<tr key=${keyOf ? keyOf(row) : i} class=${rowClass(row)}>
            ${columns.map((c) => html`<td class=${c.isNumber ? "number" : ""}>${c.cell(row)}</td>`)}
          </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}

/** Buttons for the page before and after; `total` may be null if it is known only whether there is `more`. */
export function Pager({ total, shown, more, offset, size, go }) {
  const last = total === null ? offset + shown : Math.min(offset + size, total);
  const hasNext = total === null ? more : last < total;
  if (!hasNext && offset === 0) return null;
  return html`<nav class="pager" aria-label="Pages">
    <button type="button" disabled=${offset === 0} onClick=${() => go(Math.max(0, offset - size))}>Previous</button>
    <span>${whole(Math.min(offset + 1, last))} to ${whole(last)}${total === null ? "" : ` of ${whole(total)}`}</span>
    <button type="button" disabled=${!hasNext} onClick=${() => go(offset + size)}>Next</button>
  </nav>`;
}

/** The rows of a page, and whether there are more: of an answer that was asked for one row too many. */
export const pageOf = (rows, size) => ({ rows: rows.slice(0, size), more: rows.length > size });

/** A text field that tells its value a moment after the last key. */
export function Search({ label, value, onChange }) {
  const [text, setText] = useState(value);
  const timer = useRef(0);
  useEffect(() => setText(value), [value]);
  // Whoever follows a link right after typing stays where it leads.
  useEffect(() => () => clearTimeout(timer.current), []);
  const typed = (event) => {
    const now = event.target.value;
    setText(now);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => onChange(now), 200);
  };
  return html`<input type="search" aria-label=${label} placeholder=${label} value=${text} onInput=${typed} maxlength="200" />`;
}

/** A choice; `options` are pairs of a value and its text. */
export function Choice({ label, value, options, onChange }) {
  return html`<label class="choice">
    <span>${label}</span>
    <select value=${value} onChange=${(event) => onChange(event.target.value)}>
      ${options.map(([v, text]) => html`<option value=${v} selected=${v === value}>${text}</option>`)}
    </select>
  </label>`;
}

/** Buttons of which one is pressed. */
export function Buttons({ label, value, options, onChange }) {
  return html`<div class="buttons" role="group" aria-label=${label}>
    ${options.map(
      ([v, text]) =>
        html`<button type="button" aria-pressed=${v === value} onClick=${() => onChange(v)}>${text}</button>`,
    )}
  </div>`;
}

/** A modal dialog, open as long as it is there; Escape closes it. */
export function Dialog({ title, onClose, children }) {
  const dialog = useRef(null);
  useEffect(() => {
    dialog.current.showModal();
    return () => dialog.current?.close();
  }, []);
  return html`<dialog ref=${dialog} aria-labelledby="dialog-title" onClose=${onClose} onCancel=${onClose}>
    <h2 id="dialog-title">${title}</h2>
    ${children}
  </dialog>`;
}

/** A bar of a part of a whole; above the whole it is full and of another colour. */
export function Bar({ part }) {
  const shown = part === null ? 1 : Math.min(1, part);
  const level = part === null || part > STANDING.over ? "over" : part >= STANDING.near ? "near" : "";
  return html`<span class="bar ${level}" aria-hidden="true"><span style=${{ width: `${shown * 100}%` }}></span></span>`;
}
