// Requests to the server's API, with the token of this browser tab.
import { useEffect, useState } from "./vendor/preact-htm.js";

const TOKEN = "quotaplane.token";
export const LOGIN_NEEDED = "quotaplane-login-needed";

/** A refusal or failure; `message` is the server's reason. */
export class ApiError extends Error {
  constructor(status, reason) {
    super(reason);
    this.status = status;
  }
}

export const hasToken = () => sessionStorage.getItem(TOKEN) !== null;

export function setToken(text) {
  if (text) sessionStorage.setItem(TOKEN, text);
  else sessionStorage.removeItem(TOKEN);
}

/** The part of a URL after `?`; parameters without a value are left out. */
export function query(parameters) {
  const given = Object.entries(parameters).filter(([, v]) => v !== null && v !== undefined && v !== "");
  return given.length ? `?${new URLSearchParams(given)}` : "";
}

/** Make a request; returns `{content, etag}`. Throws `ApiError`, or `AbortError` of `signal`. */
export async function ask(path, { method = "GET", body, headers = {}, signal } = {}) {
  const sent = { ...headers };
  const token = sessionStorage.getItem(TOKEN);
  if (token) sent.Authorization = `Bearer ${token}`;
  if (body !== undefined) sent["Content-Type"] = "application/json";
  let answer, text;
  try {
    const content = body === undefined ? undefined : JSON.stringify(body);
    answer = await fetch(`api/v1/${path}`, { method, headers: sent, body: content, signal, cache: "no-store" });
    text = await answer.text();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "The server does not answer: it was stopped, or the network is down.");
  }
  let content = null;
  try {
    content = text ? JSON.parse(text) : null;
  } catch {
    // A proxy's page of its own; the status says enough.
  }
  if (answer.ok) return { content, etag: answer.headers.get("ETag") };
  if (answer.status === 401) window.dispatchEvent(new Event(LOGIN_NEEDED));
  throw new ApiError(answer.status, content?.reason ?? `The server answered with status ${answer.status}.`);
}

/**
 * The newest answer to a request: `{content, etag, error, isLoading, reload}`.
 *
 * `everyMs`: it is made again and again, while the page is visible. The answer to the request before
 * stays until there is one, so that nothing jumps.
 */
export function useAnswer(path, everyMs = 0) {
  const [state, setState] = useState({ path: null, content: null, etag: null, error: null });
  const [times, setTimes] = useState(0);
  useEffect(() => {
    if (path === null) return undefined;
    const abort = new AbortController();
    let timer = 0;
    let isAsking = false;
    const load = async () => {
      clearTimeout(timer);
      if (isAsking || document.hidden) return;
      isAsking = true;
      try {
        const answer = await ask(path, { signal: abort.signal });
        setState({ path, ...answer, error: null });
      } catch (error) {
        if (error.name === "AbortError") return;
        setState((before) => ({ ...before, path, error }));
      }
      isAsking = false;
      if (everyMs) timer = setTimeout(load, everyMs);
    };
    document.addEventListener("visibilitychange", load);
    load();
    return () => {
      abort.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", load);
    };
  }, [path, everyMs, times]);
  return { ...state, isLoading: state.path !== path, reload: () => setTimes((n) => n + 1) };
}
