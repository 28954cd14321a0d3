// What this browser remembers for a person: saved views, dismissed entries, choices of notices.
// Nothing secret, nothing that another browser would miss. Written only when the person asks.
const prefix = 'billow.';

export function remembered<T>(key: string, otherwise: T): T {
  try {
    const text = localStorage.getItem(prefix + key);
    return text === null ? otherwise : (JSON.parse(text) as T);
  } catch {
    return otherwise; // storage is switched off, or holds something else
  }
}
export function remember(key: string, value: unknown): void {
  try {
    localStorage.setItem(prefix + key, JSON.stringify(value));
  } catch {
    /* storage is switched off: the choice lasts as long as the page */
  }
}
