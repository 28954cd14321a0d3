// The pages: their addresses, names, keys and icons. Pages that are opened rarely are chunks that
// are loaded when they are opened.
import type { ComponentChildren } from 'preact';

export interface PageEntry {
  path: string;
  name: string;
  key: string; // after g
  icon: ComponentChildren;
}
export const pages: PageEntry[] = [
  { path: '/', name: 'Overview', key: 'o', icon: <path d="M3 12l9-8 9 8M6 10v9h12v-9" /> },
  { path: '/jobs', name: 'Jobs', key: 'j', icon: <path d="M4 6h16M4 12h16M4 18h10" /> },
  { path: '/run', name: 'Run', key: 'r', icon: <path d="M7 4l12 8-12 8z" /> },
  {
    path: '/terminal',
    name: 'Terminal',
    key: 't',
    icon: <path d="M4 5h16v14H4zM7 9l3 3-3 3M12 15h5" />,
  },
  {
    path: '/endpoints',
    name: 'Endpoints',
    key: 'e',
    icon: (
      <path d="M12 4a8 8 0 100 16 8 8 0 000-16M4 12h16M12 4c3 3 3 13 0 16M12 4c-3 3-3 13 0 16" />
    ),
  },
  {
    path: '/nodes',
    name: 'Nodes',
    key: 'n',
    icon: <path d="M4 4h16v7H4zM4 13h16v7H4zM8 7.5h.01M8 16.5h.01" />,
  },
  {
    path: '/costs',
    name: 'Costs',
    key: 'c',
    icon: <path d="M12 3v18M16 7c-1-1.500-7-2-7 1.500 0 4 8 2.500 8 6.500 0 3.500-7 3-8.500 1" />,
  },
  {
    path: '/advisor',
    name: 'Advisor',
    key: 'v',
    icon: (
      <path d="M9 18h6M10 21h4M12 3a6 6 0 014 10.500c-1 1-1 2-1 2.500H9c0-.500 0-1.500-1-2.500A6 6 0 0112 3z" />
    ),
  },
  {
    path: '/more',
    name: 'More',
    key: 'm',
    icon: <path d="M5 6h5v5H5zM14 6h5v5h-5zM5 14h5v5H5zM14 14h5v5h-5z" />,
  },
  {
    path: '/admin',
    name: 'Admin',
    key: 'a',
    icon: <path d="M12 12a4 4 0 100-8 4 4 0 000 8M4 21c0-4 4-6 8-6s8 2 8 6" />,
  },
];
// Pages that are not in the navigation, with the page there that they belong to.
export const others: { path: string; name: string; under: string }[] = [
  { path: '/waste', name: 'Waste', under: '/costs' },
  { path: '/activity', name: 'Since yesterday', under: '/' },
  { path: '/settings', name: 'Notifications', under: '/more' },
  { path: '/schedules', name: 'Schedules', under: '/more' },
  { path: '/volumes', name: 'Volumes', under: '/more' },
  { path: '/secrets', name: 'Secrets', under: '/more' },
  { path: '/environments', name: 'Environments', under: '/more' },
  { path: '/webhooks', name: 'Webhooks', under: '/more' },
  { path: '/prices', name: 'Prices', under: '/more' },
  { path: '/invoices', name: 'Invoices', under: '/more' },
  { path: '/pools', name: 'Pools and clouds', under: '/more' },
  { path: '/audit', name: 'Audit', under: '/more' },
  { path: '/compare', name: 'Compare jobs', under: '/jobs' },
  { path: '/reservations', name: 'Reservations', under: '/more' },
];
export const nameOfPage = (path: string) =>
  pages.find((p) => p.path === path)?.name ?? others.find((p) => p.path === path)?.name;
