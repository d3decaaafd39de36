// Before the first paint: the theme and the language that were chosen, so that nothing flashes.
(function () {
  let theme = null, language = null;
  try {
    theme = localStorage.getItem("crayfish.theme");
    language = localStorage.getItem("crayfish.language");
  } catch { /* A browser that keeps nothing follows the system. */ }
  const root = document.documentElement;
  if (theme === "light" || theme === "dark") root.dataset.theme = theme;
  const spoken = language ?? navigator.language ?? "en";
  root.lang = spoken.toLowerCase().startsWith("zh") ? "zh" : "en";
})();
