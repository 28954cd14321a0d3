// What a line that somebody types into the form would run. A line without shell syntax is split
// into words; one with pipes, variables and the like is given to `sh -c`, and the form says so.
export interface Command {
  argv: string[];
  shell: boolean; // sh -c runs it
  error: string;
}

export const quoted = (word: string) =>
  /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replace(/'/g, `'\\''`)}'`;

const special = /[|&;<>()$`*?[\n]/;

export function parseCommand(text: string): Command {
  const argv: string[] = [];
  let word = '',
    quote = '',
    open = false,
    bare = true, // no quote in this word so far
    shell = false;
  const end = () => {
    if (open) argv.push(word);
    if (open && bare && (word.startsWith('~') || word.startsWith('#'))) shell = true;
    if (open && bare && argv.length === 1 && /^[A-Za-z_]\w*=/.test(word)) shell = true;
    word = '';
    open = false;
    bare = true;
  };
  for (let i = 0; i < text.length; i++) {
    const c = text[i];
    if (quote) {
      if (c === quote) quote = '';
      else if (c === '\\' && quote === '"' && /["\\$`]/.test(text[i + 1] ?? '')) word += text[++i];
      else {
        if (quote === '"' && /[$`]/.test(c)) shell = true;
        word += c;
      }
    } else if (c === '"' || c === "'") {
      quote = c;
      open = true;
      bare = false;
    } else if (c === '\\' && i + 1 < text.length) {
      word += text[++i];
      open = true;
      bare = false;
    } else if (special.test(c)) {
      shell = true;
      word += c;
      open = true;
    } else if (/\s/.test(c)) end();
    else {
      word += c;
      open = true;
    }
  }
  end();
  if (quote)
    return {
      argv,
      shell,
      error: `A quote is not closed: add ${quote} at the end of what it quotes.`,
    };
  return { argv: shell ? ['sh', '-c', text.trim()] : argv, shell, error: '' };
}

// The text that gives these words again.
export function commandText(argv: string[]): string {
  if (argv.length === 3 && argv[0] === 'sh' && argv[1] === '-c') {
    const again = parseCommand(argv[2]);
    if (again.shell && !again.error) return argv[2];
  }
  return argv.map(quoted).join(' ');
}

// GPUs by the rules of the command line: whole ones, or a fraction of a single one.
export function gpusOf(text: string): { milli: number; error: string } {
  const given = text.trim();
  if (!given) return { milli: 0, error: '' };
  const n = Number(given);
  if (Number.isNaN(n)) return { milli: 0, error: `GPUs: “${given}” is no number.` };
  if (n < 0)
    return { milli: 0, error: 'GPUs must not be negative. Use 0 for a job without a GPU.' };
  const milli = Math.round(n * 1000);
  if (n > 0 && (milli === 0 || Math.abs(n * 1000 - milli) > 1e-6))
    return { milli: 0, error: 'A share of a GPU has at most three digits, such as 0.125.' };
  if (milli > 1000 && milli % 1000)
    return {
      milli: 0,
      error: `${given} GPUs: only a single GPU can be divided. Use 0.5, or a whole number such as 2.`,
    };
  return { milli, error: '' };
}
