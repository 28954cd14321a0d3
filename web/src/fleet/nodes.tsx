// Nodes: loaded when they are first shown, because their charts are large.
import { lazy } from '../parts/lazy';

export const Nodes = lazy(() => import('./node_list').then((m) => m.NodeList));
export const NodePage = lazy(() => import('./node_page').then((m) => m.NodePage));
