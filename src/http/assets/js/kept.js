// What this browser keeps: drafts, messages on their way, the token, choices. A browser that keeps
// nothing (private windows, full storage) still works until the page is closed.
const memory = new Map();

export function read(name) {
  const key = `crayfish.${name}`;
  try {
    const value = localStorage.getItem(key);
    if (value !== null) return value;
  } catch { /* falls through to memory */ }
  return memory.get(key) ?? null;
}

export function write(name, value) {
  const key = `crayfish.${name}`;
  if (value === null || value === "") {
    memory.delete(key);
    try { localStorage.removeItem(key); } catch { /* nothing was kept */ }
    return;
  }
  memory.set(key, value);
  try { localStorage.setItem(key, value); } catch { /* kept in memory only */ }
}

export function readList(name) {
  try {
    const list = JSON.parse(read(name) ?? "[]");
    return Array.isArray(list) ? list : [];
  } catch {
    return [];
  }
}

export const writeList = (name, list) => write(name, list.length ? JSON.stringify(list) : null);

/** Everything of ours goes, the drafts too. */
export function forget() {
  memory.clear();
  try {
    for (const key of Object.keys(localStorage)) if (key.startsWith("crayfish.")) localStorage.removeItem(key);
  } catch { /* nothing was kept */ }
}
