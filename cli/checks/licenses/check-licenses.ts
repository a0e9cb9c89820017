import { existsSync } from 'node:fs';
import path from 'node:path';
import { INSTALLS } from '../../folders.ts';
import { capture, lastLine } from '../capture.ts';
import { failed, notChecked, passed, type Verdict } from '../check.ts';
import { NPM_EXCEPTIONS, PYTHON_EXCEPTIONS } from './exceptions.ts';
import { npmPackages } from './npm-packages.ts';
import { exceptionFor, isPermissive, type Exception, type Package } from './policy.ts';
import { installedPackages, pythonPackages } from './python-packages.ts';

export async function npmLicenses(): Promise<Verdict> {
  return judge(npmPackages(), NPM_EXCEPTIONS);
}

export async function pythonLicenses(signal: AbortSignal): Promise<Verdict> {
  if (!existsSync(INSTALLS.python))
    return notChecked('the Python packages are not installed: run `npx trialgate install` first');
  const listed = await capture([INSTALLS.python, path.join(INSTALLS.gpuWorkers, 'list_licenses.py')], signal);
  if (listed.code !== 0) return failed('the installed packages cannot be listed', [lastLine(listed.stderr)]);
  const packages = pythonPackages(installedPackages.parse(JSON.parse(listed.stdout)));
  const known = packages.flatMap(({ license, ...each }) => (license === undefined ? [] : [{ ...each, license }]));
  const unknown = packages
    .filter(({ license }) => license === undefined)
    .map(({ name }) => `${name} is locked and not installed here: add its license to cli/checks/licenses/elsewhere.ts`);
  return judge(known, PYTHON_EXCEPTIONS, unknown);
}

function judge(
  packages: readonly Package[],
  exceptions: readonly Exception[],
  unknown: readonly string[] = [],
): Verdict {
  const others = packages.filter(({ license }) => license === null || !isPermissive(license));
  const refused = others.filter((each) => !exceptionFor(each, exceptions));
  const sentences = refused.map(
    ({ name, version, license }) =>
      `${name} ${version}: ${license === null ? 'its metadata names no license' : `${license} is not on the list of permissive licenses`}. Use another package, or add it to cli/checks/licenses/exceptions.ts with a reason`,
  );
  const details = [...sentences, ...unknown];
  if (details.length > 0) return failed(`${details.length} of ${packages.length + unknown.length} packages`, details);
  return passed(
    `${packages.length} packages, ${others.length} of them by an exception with a reason (cli/checks/licenses/exceptions.ts)`,
  );
}
