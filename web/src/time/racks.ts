// Racks, switches and nodes as the labels of nodes say, and what goes over their links.
import type { NodeInfo } from '../data/api';
import type { Host, Traffic } from '../data/store';
import { byName } from './names';

export interface Switch {
  name: string; // empty: no label says which
  nodes: NodeInfo[];
}
export interface Rack {
  name: string;
  switches: Switch[];
}

// Nodes without GPUs are left out: the picture is about GPUs and the links between them.
export function racksOf(nodes: Iterable<NodeInfo>): Rack[] {
  const racks = new Map<string, Map<string, NodeInfo[]>>();
  for (const node of nodes) {
    if (!node.gpus.length) continue;
    const rack = node.labels.rack ?? '';
    const key = node.labels.switch ?? '';
    const switches = racks.get(rack) ?? new Map<string, NodeInfo[]>();
    racks.set(rack, switches);
    switches.set(key, [...(switches.get(key) ?? []), node]);
  }
  const named = <T>(map: Map<string, T>) => [...map].sort(([a], [b]) => byName(a, b));
  return named(racks).map(([name, switches]) => ({
    name,
    switches: named(switches).map(([key, list]) => ({
      name: key,
      nodes: list.sort((a, b) => byName(a.name, b.name)),
    })),
  }));
}

// What a node sends and receives on its network, KiB/s; -1: unknown.
export function networkOf(host: Host | undefined): number {
  if (!host || (host.rx < 0 && host.tx < 0)) return -1;
  return Math.max(0, host.rx) + Math.max(0, host.tx);
}
// What its GPUs exchange by NVLink.
export function nvlinkOf(flows: Traffic[] | undefined): number {
  return (flows ?? []).reduce((sum, flow) => sum + Math.max(0, flow?.nvlink ?? 0), 0);
}
// The sum of what is known; -1 if nothing is.
export function sumOf(values: number[]): number {
  const known = values.filter((v) => v >= 0);
  return known.length ? known.reduce((a, b) => a + b, 0) : -1;
}
