// What an event of the stream /v1/live contains: first everything, then what changed.
import type { Job, NodeInfo, Row, Summary } from './api';

// [node, GPU, thousandths given out, busy %, MiB, W, °C, health score, jobs, fault]
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
];

export interface Piece {
  now: number;
  jobs?: Row[];
  gone?: number[];
  ended?: Job[];
  nodes?: NodeInfo[];
  nodes_gone?: number[];
  gpus?: GpuReading[];
  hosts?: [number, number, number][]; // node, thousandths of CPUs, MiB
  summary?: Summary;
}
