export const NEEDED_GB: { cpu: number; cuda: number };
export function systemLack(): string | null;
export function lookForPython(
  named: string | undefined,
): { path: string; version: string; lack: null } | { path?: undefined; version?: undefined; lack: string };
export function freeGigabytes(folder: string): number;
export function diskLack(folder: string, gigabytes: number): string | null;
export function inOneMessage(lacks: readonly string[]): string;
