// Pages that are opened now and then, in one chunk: apart from the first page, and few files.
export { Activity } from './activity';
export { Admin } from './admin';
export { Advisor } from './advisor';
export { More, ResourcePage } from './more';
export { Palette } from './palette';
export { RunForm } from './run';
export { Settings } from './settings';
export { TerminalPage } from './terminal';
export { WastePage } from './waste';
