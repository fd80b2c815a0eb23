// The frame of the page: which view a link means, the top bar, logging in.
import { html, render, useEffect, useState } from "./vendor/preact-htm.js";
import { LOGIN_NEEDED, hasToken, query, setToken, useAnswer } from "./api.js";
import { Audits } from "./audits.js";
import { Balance } from "./balance.js";
import { Brokers } from "./brokers.js";
import { Glance } from "./glance.js";
import { Group } from "./group.js";
import { Failure } from "./parts.js";
import { Rejected } from "./rejected.js";

const VIEWS = [
  ["", "Groups", Glance],
  ["brokers", "Brokers", Brokers],
  ["rejected", "Rejected", Rejected],
  ["audits", "Audits", Audits],
  ["balance", "Balance", Balance],
];

/** `#/groups/NAME?range=1h` as `{view, name, options}`. */
function readLink() {
  const [path, search] = location.hash.replace(/^#\/?/, "").split("?");
  const [view, ...rest] = path.split("/");
  let name = rest.join("/");
  try {
    name = decodeURIComponent(name);
  } catch {
    // Not encoded: taken as it is.
  }
  return { view, name, options: Object.fromEntries(new URLSearchParams(search ?? "")) };
}

function Login({ known }) {
  const [text, setText] = useState("");
  const submit = (event) => {
    event.preventDefault();
    setToken(text.trim());
    location.reload();
  };
  return html`<main id="main" class="login">
    <h1>quotaplane</h1>
    <form onSubmit=${submit}>
      <label>
        <span>Token (a JSON web token; it stays in this browser tab)</span>
        <input type="password" autocomplete="off" required value=${text} onInput=${(e) => setText(e.target.value)} />
      </label>
      <button type="submit" class="main">Log in</button>
    </form>
    ${known && html`<p role="alert">The server did not accept the token: it is wrong, or no longer valid.</p>`}
  </main>`;
}

function ThemeSwitch() {
  const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  const [theme, setTheme] = useState(document.documentElement.dataset.theme ?? system);
  const other = theme === "dark" ? "light" : "dark";
  const turn = () => {
    document.documentElement.dataset.theme = other;
    localStorage.setItem("quotaplane.theme", other);
    setTheme(other);
    window.dispatchEvent(new Event("quotaplane-theme"));
  };
  return html`<button type="button" class="quiet" onClick=${turn} title=${`Show the page ${other}`}>
    ${theme === "dark" ? "Light" : "Dark"}
  </button>`;
}

function App() {
  const [link, setLink] = useState(readLink);
  const [isLoginNeeded, setLoginNeeded] = useState(false);
  const me = useAnswer("me");
  useEffect(() => {
    const moved = () => setLink(readLink());
    const needed = () => setLoginNeeded(true);
    window.addEventListener("hashchange", moved);
    window.addEventListener(LOGIN_NEEDED, needed);
    return () => {
      window.removeEventListener("hashchange", moved);
      window.removeEventListener(LOGIN_NEEDED, needed);
    };
  }, []);
  const { view, name, options } = link;
  const place = VIEWS.find(([path]) => path === (view === "groups" ? "" : view));
  useEffect(() => {
    const title = view === "groups" && name ? name : place?.[1] ?? "";
    document.title = `${title} – quotaplane`;
  }, [view, name]);
  if (isLoginNeeded) return html`<${Login} known=${hasToken()} />`;
  if (me.error) return html`<main id="main"><${Failure} error=${me.error} retry=${me.reload} /></main>`;
  if (!me.content) return null;

  const roles = me.content.roles;
  const may = (role, tenant) => {
    const levels = { viewer: 1, operator: 2, admin: 3 };
    const level = (given) => levels[roles[given]] ?? 0;
    return Math.max(level("*"), level(tenant)) >= levels[role];
  };
  /** Change options of the link: what is null or empty is left out. */
  const setOptions = (changed) => {
    const path = view ? `${view}${name ? `/${encodeURIComponent(name)}` : ""}` : "";
    location.hash = `#/${path}${query({ ...options, ...changed })}`;
  };
  const shared = { options, setOptions, may, me: me.content };
  let shown = html`<h1>There is no such view</h1><p><a href="#/">All groups</a></p>`;
  if (view === "groups" && name) shown = html`<${Group} key=${name} name=${name} ...${shared} />`;
  else if (place) shown = html`<${place[2]} ...${shared} />`;
  const logOut = () => {
    setToken(null);
    location.reload();
  };
  return html`
    <a class="skip" href="#main" onClick=${(e) => (e.preventDefault(), document.getElementById("main").focus())}>
      Skip to the content
    </a>
    <header class="top">
      <a class="brand" href="#/"><img src="page/icon.svg" alt="" width="24" height="24" /> quotaplane</a>
      <nav aria-label="Views">
        ${VIEWS.map(([path, title]) => {
          const isHere = path === view || (path === "" && view === "groups");
          return html`<a href=${`#/${path}`} aria-current=${isHere ? "page" : null}>${title}</a>`;
        })}
      </nav>
      <span class="who" title=${`Roles: ${Object.entries(roles).map(([t, r]) => `${r} of ${t === "*" ? "all tenants" : t}`).join(", ") || "none"}`}>
        ${me.content.anonymous ? "not logged in" : me.content.name}
      </span>
      ${hasToken()
        ? html`<button type="button" class="quiet" onClick=${logOut}>Log out</button>`
        : html`<button type="button" class="quiet" onClick=${() => setLoginNeeded(true)}>Log in</button>`}
      <${ThemeSwitch} />
    </header>
    <main id="main" tabindex="-1">${shown}</main>
  `;
}

render(html`<${App} />`, document.getElementById("page"));
