// Files imported as text; see build.mjs.
declare module 'text:*' {
  const content: string;
  export default content;
}
