// Light or dark, before anything is drawn. Without a choice, as the system has it.
"use strict";
{
  const chosen = localStorage.getItem("quotaplane.theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
}
