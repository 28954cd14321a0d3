// Pages that are opened now and then, in one chunk: apart from the first page, and few files.
export { Activity } from '../admin/activity';
export { Admin } from '../admin/admin';
export { Advisor } from '../fleet/advisor';
export { More, ResourcePage } from '../admin/more';
export { Palette } from './palette';
export { RunForm } from '../jobs/run';
export { Settings } from './settings';
export { TerminalPage } from '../jobs/terminal';
export { WastePage } from '../jobs/waste';
