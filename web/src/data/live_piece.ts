// What an event of the stream /v1/live contains: first everything, then what changed.
import type { Job, NodeInfo, Row, Summary } from './api';

// [node, GPU, thousandths given out, busy %, MiB, W, °C, health score, jobs, fault, thousandths that
// a reservation keeps free]
export type GpuReading = [
  number,
  number,
  number,
  number,
  number,
  number,
  number,
  number,
  number[],
  string?,
  number?,
];
// [node, GPU, NVLink sent, NVLink received, PCIe sent, PCIe received], KiB/s; -1: unknown
export type LinkReading = [number, number, number, number, number, number];
// [node, thousandths of CPUs, MiB, network received, network sent], the last two KiB/s
export type HostReading = [number, number, number, number?, number?];

export interface Piece {
  now: number;
  jobs?: Row[];
  gone?: number[];
  ended?: Job[];
  nodes?: NodeInfo[];
  nodes_gone?: number[];
  gpus?: GpuReading[];
  links?: LinkReading[];
  hosts?: HostReading[];
  summary?: Summary;
}
