// Colours of projects: ten hues that stay apart also with the common colour weaknesses, dark enough
// for white text on a light page and light enough for dark text on a dark one (at least 4.5 : 1).
const onLight = [
  '#2463c4',
  '#0b7a6f',
  '#9a5b00',
  '#8f3fa6',
  '#a62c70',
  '#3f6f1f',
  '#5a4fcf',
  '#8a5138',
  '#0a7391',
  '#66707e',
];
const onDark = [
  '#7fb0ff',
  '#4fd1c0',
  '#f0b656',
  '#d9a0ea',
  '#ff9cc8',
  '#a5d273',
  '#b3acff',
  '#dfa98c',
  '#6cd0ef',
  '#b4bdca',
];
export const colours = (dark: boolean) => (dark ? onDark : onLight);
export const inkOn = (dark: boolean) => (dark ? '#0c1626' : '#ffffff');

// A project keeps its colour whatever else is shown, except when two would share one: then the
// later name takes the next free colour.
export function assign(projects: Iterable<string>): Map<string, number> {
  const out = new Map<string, number>();
  const taken = new Set<number>();
  for (const name of [...new Set(projects)].sort()) {
    let at = hash(name) % onLight.length;
    for (let i = 0; i < onLight.length && taken.has(at); i++) at = (at + 1) % onLight.length;
    taken.add(at);
    if (taken.size === onLight.length) taken.clear();
    out.set(name, at);
  }
  return out;
}
function hash(text: string): number {
  let h = 2166136261;
  for (let i = 0; i < text.length; i++) h = Math.imul(h ^ text.charCodeAt(i), 16777619) >>> 0;
  return h;
}

// Contrast of two colours by WCAG 2.
export function contrast(a: string, b: string): number {
  const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
  return (high + 0.05) / (low + 0.05);
}
function luminance(hex: string): number {
  const [r, g, b] = [1, 3, 5].map((i) => {
    const v = parseInt(hex.slice(i, i + 2), 16) / 255;
    return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
