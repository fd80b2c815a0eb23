// Who changed a group, when, from what to what and why; and going back.
import { html, useEffect, useState } from "./vendor/preact-htm.js";
import { ask, query, useAnswer } from "./api.js";
import { Dialog, Failure, Pager, Time } from "./parts.js";
import { Differences } from "./what_if.js";

const PAGE = 10;

function GoBack({ name, version, onClose, done }) {
  const [why, setWhy] = useState("");
  const [error, setError] = useState(null);
  const [shown, setShown] = useState(null);
  const asked = { groups: [name], version };
  useEffect(() => {
    ask("rollback?dry_run=true", { method: "POST", body: asked }).then(({ content }) => setShown(content), setError);
  }, []);
  const submit = async (event) => {
    event.preventDefault();
    try {
      await ask("rollback", { method: "POST", body: { ...asked, why } });
      done();
    } catch (refusal) {
      setError(refusal);
    }
  };
  const change = shown?.changed[0];
  return html`<${Dialog} title=${`Go back to version ${version}`} onClose=${onClose}>
    <form onSubmit=${submit}>
      ${shown && (change ? html`<${Differences} ...${change} />` : html`<p>The group is as it was then already.</p>`)}
      <label><span>Reason (it is kept in the history)</span>
        <input type="text" required maxlength="1000" value=${why} onInput=${(e) => setWhy(e.target.value)} /></label>
      <${Failure} error=${error} />
      <p class="actions">
        <button type="button" onClick=${onClose}>Cancel</button>
        <button type="submit" class="main" disabled=${!change}>Go back</button>
      </p>
    </form>
  </${Dialog}>`;
}

/** `state`: another one means that the group was changed. */
export function Changes({ name, state, mayChange, changed }) {
  const [offset, setOffset] = useState(0);
  const [version, setVersion] = useState(null);
  const answer = useAnswer(`changes${query({ group: name, limit: PAGE, offset })}`, 15000);
  const { content } = answer;
  useEffect(() => {
    if (state) answer.reload();
  }, [state]);
  const done = () => {
    setVersion(null);
    answer.reload();
    changed();
  };
  return html`<section aria-labelledby="changes">
    <h2 id="changes">Changes</h2>
    <${Failure} error=${answer.error} retry=${answer.reload} />
    ${content && content.changes.length === 0 && html`<p class="hint">No change is recorded.</p>`}
    ${content && html`<ol class="changes" reversed>
      ${content.changes.map(
        (change, i) => html`<li key=${change.version}>
          <p><${Time} at=${change.at} /> <b><bdi>${change.by}</bdi></b>${change.why && html`: <q>${change.why}</q>`}</p>
          <${Differences} from=${change.from} to=${change.to} />
          ${mayChange && change.to !== null && (i > 0 || offset > 0) && html`<button type="button" class="quiet"
            aria-label=${`Go back to version ${change.version}`} onClick=${() => setVersion(change.version)}>Go back to this</button>`}
        </li>`,
      )}
    </ol>
    <${Pager} total=${content.total} offset=${offset} size=${PAGE} go=${setOffset} />`}
    ${version !== null && html`<${GoBack} name=${name} version=${version} done=${done} onClose=${() => setVersion(null)} />`}
  </section>`;
}
