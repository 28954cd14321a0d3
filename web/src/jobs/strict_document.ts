// A document for xterm.js that keeps to the page's policy. style-src 'self' blocks <style> elements
// and style attributes, and xterm.js uses both; here they become calls of the CSSOM, which the
// policy allows.

export function adopt(sheet: CSSStyleSheet): void {
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
}
export function abandon(sheet: CSSStyleSheet): void {
  document.adoptedStyleSheets = document.adoptedStyleSheets.filter((s) => s !== sheet);
}

// Stands for a <style> element: its content goes into an adopted style sheet.
function makeStyle(): HTMLElement {
  const element = document.createElement('template');
  const sheet = new CSSStyleSheet();
  adopt(sheet);
  Object.defineProperty(element, 'textContent', {
    set: (text: string) => sheet.replaceSync(text),
    get: () => '',
  });
  const remove = element.remove.bind(element);
  element.remove = () => {
    abandon(sheet);
    remove();
  };
  return element;
}

function makeSpan(): HTMLElement {
  const element = document.createElement('span');
  const setAttribute = element.setAttribute.bind(element);
  element.setAttribute = (name: string, value: string) => {
    if (name === 'style') element.style.cssText = value;
    else setAttribute(name, value);
  };
  return element;
}

function createElement(tag: string, options?: ElementCreationOptions): HTMLElement {
  if (tag === 'style') return makeStyle();
  if (tag === 'span') return makeSpan();
  return document.createElement(tag, options);
}

export const strictDocument = new Proxy(document, {
  get(target, key) {
    if (key === 'createElement') return createElement;
    const value: unknown = Reflect.get(target, key, target);
    return typeof value === 'function' ? value.bind(target) : value;
  },
  set: (target, key, value) => Reflect.set(target, key, value, target),
});
// The name that build.mjs injects.
export { strictDocument as document };
