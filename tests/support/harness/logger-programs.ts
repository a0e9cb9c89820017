import { readdirSync, readFileSync } from 'node:fs';

/** Kills the loggers' programs that this process started, and returns how many they were. */
export function killLoggerPrograms(): number {
  const programs = readdirSync('/proc').filter((pid) => /^\d+$/.test(pid) && isLogger(pid));
  for (const pid of programs) process.kill(Number(pid), 'SIGKILL');
  return programs.length;
}

function isLogger(pid: string): boolean {
  try {
    const parent = /^PPid:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1];
    return Number(parent) === process.pid && readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('trialgate_loggers');
  } catch {
    // It has ended meanwhile.
    return false;
  }
}
