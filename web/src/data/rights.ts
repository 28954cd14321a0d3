// What the person may do, so that pages show only buttons that work. The head decides in the end.
import { effect, signal } from '@preact/signals';
import { get } from './api';
import { ready, status } from './store';

export interface Membership {
  name: string;
  members: Record<string, string>;
}
export const projects = signal<Membership[]>([]);

export async function loadProjects(): Promise<void> {
  try {
    projects.value = (await get<{ projects: Membership[] }>('/v1/projects')).projects;
  } catch {
    /* without them the choice of projects is empty; the head decides */
  }
}
effect(() => {
  if (ready.value) void loadProjects();
});

// Whether the person may do this with the token of this session: everywhere, or in the project.
export function may(permission: string, project = ''): boolean {
  const you = status.value?.you;
  if (!you) return false;
  return (
    you.permissions.includes(permission) ||
    (you.permissions_in[project]?.includes(permission) ?? false)
  );
}
const somewhere = (permission: string) =>
  may(permission) ||
  Object.values(status.value?.you.permissions_in ?? {}).some((p) => p.includes(permission));
interface Owned {
  user: string;
  project: string;
}
// Those who may steer everything in a project, and others what is theirs.
const maySteer = (it: Owned, own: string): boolean =>
  may('jobs.any', it.project) || (it.user === status.value?.you.user && may(own, it.project));
export const mayActOn = (job: Owned) => maySteer(job, 'jobs.run');
export const mayChange = (endpoint: Owned) => maySteer(endpoint, 'endpoints.deploy');
// Projects in which the person may do this.
export const projectsWhere = (permission: string) =>
  projects.value.map((p) => p.name).filter((name) => may(permission, name));
export const maySubmit = () => somewhere('jobs.run');
export const mayDeploy = () => somewhere('endpoints.deploy');
// The default project: that of the token, else the first in which the person may submit jobs.
export const usualProject = () =>
  status.value?.you.project || projects.value.find((p) => may('jobs.run', p.name))?.name || '';
