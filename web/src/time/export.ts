// The figures of a chart as CSV, and its picture as PNG.
export interface Column {
  label: string;
  values: (number | null)[];
}

// RFC 4180: quotes where a label needs them. A label that a spreadsheet would take for a formula
// gets an apostrophe.
const field = (text: string) => {
  const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
};
export function csvOf(times: number[], columns: Column[]): string {
  const lines = [['time', ...columns.map((c) => field(c.label))].join(',')];
  times.forEach((t, i) => {
    const cells = columns.map((c) => (c.values[i] == null ? '' : String(c.values[i])));
    lines.push([new Date(t).toISOString(), ...cells].join(','));
  });
  return lines.join('\r\n') + '\r\n';
}

export const fileName = (title: string, ending: string) =>
  `billow-${title
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, '-')
    .replace(/^-|-$/g, '')}.${ending}`;

export function save(name: string, blob: Blob): void {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  window.setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

// The chart's canvas below its title and legend, on the page's colours.
export function savePng(
  title: string,
  plot: HTMLCanvasElement,
  legend: { text: string; colour: string }[],
): void {
  const style = getComputedStyle(document.documentElement);
  const colour = (name: string) => style.getPropertyValue(name).trim();
  const scale = window.devicePixelRatio || 1;
  const head = 44 * scale;
  const canvas = document.createElement('canvas');
  canvas.width = plot.width + 24 * scale;
  canvas.height = plot.height + head + 12 * scale;
  const g = canvas.getContext('2d')!;
  g.fillStyle = colour('--card');
  g.fillRect(0, 0, canvas.width, canvas.height);
  g.drawImage(plot, 12 * scale, head);
  g.scale(scale, scale);
  g.fillStyle = colour('--text');
  g.font = '600 14px system-ui, sans-serif';
  g.fillText(title, 12, 20);
  g.font = '12px system-ui, sans-serif';
  let x = 12;
  for (const one of legend) {
    g.fillStyle = one.colour;
    g.fillRect(x, 29, 9, 9);
    g.fillStyle = colour('--dim');
    g.fillText(one.text, x + 14, 38);
    x += 28 + g.measureText(one.text).width;
  }
  canvas.toBlob((blob) => {
    if (blob) save(fileName(title, 'png'), blob);
  });
}
