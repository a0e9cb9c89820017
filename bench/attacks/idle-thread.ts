import { execFileSync } from 'node:child_process';
import { readlinkSync } from 'node:fs';

/** Lets the calling thread compute only while no other thread of the machine wants its processor (Linux: SCHED_IDLE, by util-linux's `chrt`). */
export function computeOnlyWhenIdle(): void {
  const thread = readlinkSync('/proc/thread-self').split('/').at(-1) ?? '';
  execFileSync('chrt', ['--idle', '--pid', '0', thread]);
}
