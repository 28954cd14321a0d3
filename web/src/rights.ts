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
    /* without them only admins see buttons; the head decides */
  }
}
effect(() => {
  if (ready.value) void loadProjects();
});

const mayWrite = () => status.value?.you.scope !== 'read';
export const isAdmin = () => status.value?.you.role === 'admin' && mayWrite();
const roleIn = (project: string) =>
  projects.value.find((p) => p.name === project)?.members[status.value?.you.user ?? ''] ?? '';
// Admins of a project act on all of its jobs, members on their own.
export function mayActOn(job: { user: string; project: string }): boolean {
  if (!status.value || !mayWrite()) return false;
  if (isAdmin() || roleIn(job.project) === 'admin') return true;
  return job.user === status.value.you.user && roleIn(job.project) !== 'viewer';
}
export const mayManage = (project: string) =>
  isAdmin() || (mayWrite() && roleIn(project) === 'admin');
// Projects whose budgets, secrets and members the person may change.
export const managed = () => projects.value.map((p) => p.name).filter(mayManage);
export const maySubmit = () =>
  mayWrite() &&
  (isAdmin() || projects.value.some((p) => (roleIn(p.name) || 'viewer') !== 'viewer'));
// The default project: that of the token, else the first in which the person may submit jobs.
export const usualProject = () =>
  status.value?.you.project ||
  projects.value.find((p) => (roleIn(p.name) || 'viewer') !== 'viewer')?.name ||
  '';
