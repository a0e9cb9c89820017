import { INSTALLS } from '../folders.ts';
import { lockOwner } from '../supervisor/socket-owner.ts';

/** Says which process installs here now, such as a quickstart in another terminal; null if none does. What it has not made yet must not count as missing. */
export function otherInstall(root = INSTALLS.root): string | null {
  const owner = lockOwner(root, 'install');
  return owner && `${owner} installs Trialgate here now: wait until it has ended`;
}
