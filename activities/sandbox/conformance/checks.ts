import { randomBytes, randomInt } from 'node:crypto';
import { access, mkdir, readFile, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Capabilities, SandboxBackend } from '../backend.ts';
import type { OnOutput } from '../bounded-output.ts';
import type { Sandbox } from '../empty-sandbox.ts';
import type { Network } from '../network.ts';
import type { ProcessResult } from '../run-process.ts';
import { listPids } from '../../../core/process-stat.ts';
import { copyFiles } from '../copy-files.ts';
import { compareView, variablesIn } from './compare-view.ts';
import { LIMITS, requireThat, type Context } from './context.ts';

/** One sentence about every kind of sandbox, and the program that tries it. */
export type Check = {
  sentence: string;
  /** Absent: every kind must pass it. Otherwise it is skipped, and reported so, where the kind says that it cannot. */
  needs?: (capabilities: Capabilities) => boolean;
  /** True for a check that takes long or much disk. */
  isLarge?: true;
  run: (context: Context) => Promise<void>;
};

const printed = ({ stdout, stderr, reason, exitCode, signal }: ProcessResult): string =>
  `it ended with ${reason}, exit code ${exitCode}, signal ${signal}, and printed ${JSON.stringify((stdout + stderr).slice(-400))}`;

/** Tells all of the standard output so far, at each piece of it. On standard error there may be warnings of the machine, such as one about its language. */
function onStdout(tell: (soFar: string) => void): OnOutput {
  let soFar = '';
  return (stream, text) => {
    if (stream === 'stdout') tell((soFar += text));
  };
}

/** An end that takes more seconds than this is not prompt, also on a busy machine. */
const SOON = 60;

const isolates = ({ networks }: Capabilities): boolean => networks.includes('none');

/** A kind whose sandboxes are on other hosts may not have this network. */
export const HOST_NETWORK = 'with the network `host` a program reaches the host’s ports';

/**
 * The programs need `bash`, `python3` and the options that the commands of GNU and of busybox share: sizes are numbers of bytes. An image may have
 * files in its work folder, so what a program writes there has a name that begins with `check-`.
 */
export const CHECKS: Check[] = [
  {
    sentence: 'a program starts in the work folder, with the environment that it is given and nothing of the worker’s',
    run: async ({ start, shell, commandOf, backend }) => {
      const sandbox = await start();
      const { PATH = '' } = commandOf(sandbox).env;
      const value = 'x y\n"z"';
      const result = await shell(sandbox, 'pwd; cat /proc/self/environ', { env: { PATH, A: value } });
      const end = result.stdout.indexOf('\n');
      const folder = result.stdout.slice(0, end);
      requireThat(folder === backend.pathsOf(sandbox).work, `it starts in ${folder}`);
      const variables = variablesIn(result.stdout.slice(end + 1));
      const foreign = Object.keys(variables).filter(
        (name) => !ALLOWED_VARIABLES.includes(name) && !(name in (sandbox.image?.env ?? {})),
      );
      requireThat(foreign.length === 0, `it has the variables ${foreign.join(', ')}`);
      requireThat(variables['A'] === value, `a variable is ${JSON.stringify(variables['A'])}`);
    },
  },
  {
    sentence: 'standard output and error are told apart, and standard input is the file that it is given, or empty',
    run: async ({ start, shell, home }) => {
      const sandbox = await start();
      const stdin = join(home, 'input');
      await writeFile(stdin, 'first\nlast');
      const given = await shell(sandbox, 'cat; echo error >&2', { stdin });
      requireThat(given.stdout === 'first\nlast' && given.stderr.endsWith('error\n'), printed(given));
      const none = await shell(sandbox, 'cat; echo end');
      requireThat(none.stdout === 'end\n', printed(none));
    },
  },
  {
    sentence: 'an exit code, a signal and a missing command are told apart',
    run: async ({ start, shell }) => {
      const sandbox = await start();
      const seven = await shell(sandbox, 'exit 7');
      requireThat(seven.reason === 'exited' && seven.exitCode === 7, printed(seven));
      const killed = await shell(sandbox, 'kill -TERM $$; sleep 5');
      requireThat(killed.signal === 'SIGTERM' || killed.exitCode === 128 + 15, printed(killed));
      const missing = await shell(sandbox, '', { argv: ['there-is-no-such-command'] });
      requireThat(missing.reason === 'exited' && missing.exitCode === 127, printed(missing));
    },
  },
  {
    sentence: 'output is passed on while the program runs',
    run: async ({ start, shell }) => {
      const seen = new AbortController();
      const result = await shell(await start(), `echo first; sleep ${longTime()}`, {
        signal: seen.signal,
        onOutput: onStdout((soFar) => {
          if (soFar === 'first\n') seen.abort();
        }),
      });
      requireThat(result.reason === 'cancelled' && result.stdout === 'first\n', printed(result));
    },
  },
  {
    sentence: 'a program that prints more than its limit is ended, and the first part is kept',
    run: async ({ start, shell }) => {
      const result = await shell(await start(), 'yes', { limits: { ...LIMITS, outputBytes: 10_000 } });
      requireThat(
        result.reason === 'output_limit' && Buffer.byteLength(result.stdout + result.stderr) === 10_000,
        printed({ ...result, stdout: '' }),
      );
    },
  },
  {
    sentence: 'a program that takes longer than its limit is ended, with everything that it started',
    run: async (context) => {
      const sandbox = await context.start();
      const time = longTime();
      const script = `(setsid sleep ${time} &) ; (trap "" TERM HUP INT; sleep ${time}) & sleep ${time}`;
      const result = await context.shell(sandbox, script, { limits: { ...LIMITS, seconds: 2 } });
      requireThat(result.reason === 'timed_out' && result.seconds < SOON, printed(result));
      await requireNothingLeft(context, time);
    },
  },
  {
    sentence: 'a program that exited with an error, was killed or exceeded a limit is not run a second time',
    run: async ({ backend, start, shell, signal }) => {
      const sandbox = await start();
      const exited = await shell(sandbox, 'echo exited >> check-runs; exit 7');
      requireThat(exited.exitCode === 7, printed(exited));
      const killed = await shell(sandbox, 'echo killed >> check-runs; kill -KILL $$; sleep 5');
      requireThat(killed.signal === 'SIGKILL' || killed.exitCode === 128 + 9, printed(killed));
      const limits = { ...LIMITS, outputBytes: 10_000 };
      const exceeded = await shell(sandbox, 'echo exceeded >> check-runs; yes', { limits });
      requireThat(exceeded.reason === 'output_limit', printed({ ...exceeded, stdout: '' }));
      await backend.copyOut(sandbox, signal);
      const runs = await readFile(join(sandbox.work, 'check-runs'), 'utf8');
      requireThat(runs === 'exited\nkilled\nexceeded\n', `the programs that ran: ${JSON.stringify(runs)}`);
    },
  },
  {
    sentence: 'when a program ends, everything that it started is ended too',
    run: async (context) => {
      const sandbox = await context.start();
      const time = longTime();
      const script = `python3 -c "import os\nif os.fork()==0:\n os.setsid()\n if os.fork()==0: os.execvp('sleep',['sleep','${time}'])" ; echo done`;
      const result = await context.shell(sandbox, script);
      requireThat(result.stdout === 'done\n' && result.exitCode === 0, printed(result));
      await requireNothingLeft(context, time);
    },
  },
  {
    sentence: 'a cancelled program is ended, with everything that it started',
    run: async (context) => {
      const sandbox = await context.start();
      const time = longTime();
      const controller = new AbortController();
      let cancelledAt = Infinity;
      const result = await context.shell(sandbox, `sleep ${time} & echo started; wait`, {
        signal: controller.signal,
        onOutput: onStdout((soFar) => {
          if (soFar !== 'started\n') return;
          cancelledAt = performance.now();
          controller.abort();
        }),
      });
      requireThat(result.reason === 'cancelled' && result.stdout === 'started\n', printed(result));
      const seconds = (performance.now() - cancelledAt) / 1000;
      requireThat(seconds < SOON, `it ended ${seconds.toFixed(1)} s after it was cancelled`);
      await requireNothingLeft(context, time);
    },
  },
  {
    sentence: 'a program that was cancelled before it started does not run',
    run: async ({ start, shell }) => {
      const result = await shell(await start(), 'echo ran', { signal: AbortSignal.abort() });
      requireThat(result.reason === 'cancelled' && result.stdout === '', printed(result));
    },
  },
  {
    sentence: 'a program that uses more memory than its limit ends as out of memory, or is refused more',
    run: async ({ start, shell, backend }) => {
      const limits = { ...LIMITS, memoryMb: 128 };
      const script = `${'python3'} -c "import time\nx=[]\nfor i in range(64): x.append(b'a'*(16<<20))\ntime.sleep(5)\nprint('had it')"`;
      const result = await shell(await start(), script, { limits });
      requireThat(!result.stdout.includes('had it'), 'it got 1 GiB at a limit of 128 MiB');
      const isRefused = /MemoryError|Cannot allocate/i.test(result.stderr);
      requireThat(result.reason === 'out_of_memory' || isRefused, printed(result));
      // Files in memory are memory too.
      const files = await shell(
        await start('files.1'),
        'head -c 314572800 /dev/zero > /dev/shm/a; sleep 3; ls -la /dev/shm',
        {
          limits: { ...limits, storageMb: 128 },
        },
      );
      const isHeld = files.reason !== 'exited' || files.exitCode !== 0 || !/ 314572800 /.test(files.stdout);
      requireThat(isHeld || !backend.capabilities.kernelLimits.memory, printed(files));
    },
  },
  {
    sentence: 'a program that starts more processes than its limit is refused or ended, and the host keeps its own',
    run: async ({ start, shell }) => {
      const script =
        'python3 -c "import os,time\nn=0\ntry:\n  while n<200:\n    if os.fork()==0: time.sleep(30); os._exit(0)\n    n+=1\nexcept OSError: pass\nprint(n,flush=True)\ntime.sleep(3)"';
      const result = await shell(await start(), script, { limits: { ...LIMITS, processes: 20, seconds: 20 } });
      const seen = Number.parseInt(result.stdout, 10);
      if (result.reason === 'process_limit') return;
      requireThat(seen > 0, printed(result));
      requireThat(seen <= 60, `${seen} processes ran at a limit of 20`);
    },
  },
  {
    sentence: 'a program that writes more than its disk limit is refused or ended',
    run: async ({ start, shell }) => {
      const limits = { ...LIMITS, storageMb: 32, seconds: 40 };
      // A program that was refused has written something, or it could not write at all.
      const script = 'echo ran; head -c 209715200 /dev/zero > check-big && sleep 20; wc -c < check-big';
      const one = await shell(await start(), script, { limits });
      requireThat(one.stdout.startsWith('ran\n'), printed(one));
      const written = Number(/^ran\n *(\d+)/.exec(one.stdout)?.[1] ?? NaN);
      requireThat(one.reason === 'storage_limit' || !(written === 0 || written >= 209_715_200), printed(one));
      const many =
        'echo ran; for i in $(seq 200); do head -c 1048576 /dev/zero > check-$i || break; echo $i; done; [ $i != 200 ] || sleep 20; echo end $i';
      const result = await shell(await start('many.1'), many, { limits });
      requireThat(result.stdout.startsWith('ran\n1\n'), printed(result));
      requireThat(result.reason === 'storage_limit' || !result.stdout.includes('end 200'), printed(result));
    },
  },
  {
    sentence: 'a program cannot open files without end',
    run: async ({ start, shell }) => {
      const script =
        'python3 -c "import os\nn=0\ntry:\n  while n<200000: os.open(\'/dev/null\',0); n+=1\nexcept OSError: pass\nprint(n)"';
      const result = await shell(await start(), script);
      const opened = Number.parseInt(result.stdout, 10);
      requireThat(result.reason !== 'exited' || opened < 100_000, `it opened ${opened} files`);
    },
  },
  {
    sentence: 'a program inherits no open file and no socket but its standard input, output and error',
    run: async ({ start, shell, backend }) => {
      const sandbox = await start();
      // The folder's own descriptor is closed when the links are read.
      const script =
        'import os\nfor n in sorted(map(int, os.listdir("/proc/self/fd"))):\n  try: print(n, os.readlink(f"/proc/self/fd/{n}"))\n  except OSError: pass';
      for (const network of closedNetworks(backend, sandbox)) {
        const result = await shell(sandbox, '', { argv: ['python3', '-c', script], network });
        const opened = result.stdout.split('\n').filter((line) => line !== '');
        const numbers = opened.map((line) => line.split(' ')[0]).join(' ');
        requireThat(numbers === '0 1 2', `with the network ${network.kind}: ${printed(result)}`);
      }
    },
  },
  {
    sentence: 'a program is not root, has no capability, and cannot get one',
    needs: isolates,
    run: async ({ start, shell }) => {
      const result = await shell(
        await start(),
        'id -u; grep -E "CapEff|CapBnd|NoNewPrivs|Seccomp:" /proc/self/status; mount -t tmpfs t /tmp 2>&1; touch /usr/x 2>&1',
      );
      const [uid = '0'] = result.stdout.split('\n');
      requireThat(uid !== '0', printed(result));
      requireThat(/CapEff:\s+0{16}/.test(result.stdout), printed(result));
      requireThat(/NoNewPrivs:\s+1/.test(result.stdout), printed(result));
      requireThat(result.exitCode !== 0, 'it could write to /usr');
    },
  },
  {
    sentence: 'a program sees no file of the worker and no process but its own',
    needs: isolates,
    run: async ({ start, shell, home }) => {
      const secret = join(home, 'secret');
      await writeFile(secret, 'a secret', { mode: 0o644 });
      const sandbox = await start();
      const script = `echo ran; cat ${secret} 2>&1; cat /proc/1/environ 2>/dev/null | tr '\\0' '\\n'; cat /proc/[0-9]*/cmdline | tr '\\0' ' '; ls -a /root /home 2>&1; cat /etc/shadow 2>&1; echo end`;
      const result = await shell(sandbox, script, { network: { kind: 'none' } });
      const { stdout } = result;
      requireThat(stdout.startsWith('ran\n') && stdout.endsWith('end\n'), printed(result));
      // It must see its own processes, or the list of them says nothing.
      requireThat(stdout.includes('bash -c'), 'it does not see its own process');
      requireThat(!stdout.includes('a secret'), 'it read a file of the worker');
      requireThat(!stdout.includes(process.execPath), 'it sees the worker’s process');
      requireThat(!/root:[*!$]/.test(stdout), 'it read /etc/shadow');
    },
  },
  {
    sentence: 'a program sees the files and the variables that the kind names beforehand, and no others',
    needs: isolates,
    run: async ({ start, commandOf, backend, home }) => {
      const sandbox = await start();
      const data = join(home, 'some data');
      await mkdir(data);
      const command = commandOf(sandbox, {
        argv: ['true'],
        env: { ...commandOf(sandbox).env, A: 'x y\n"z"' },
        mounts: [{ host: data, inside: '/mounts/data', writable: false }],
      });
      for (const network of closedNetworks(backend, sandbox)) {
        const differences = await compareView(backend, sandbox, { ...command, network });
        requireThat(differences.length === 0, `with the network ${network.kind}: ${differences.join('; ')}`);
      }
    },
  },
  {
    sentence: 'two sandboxes see nothing of each other',
    needs: isolates,
    run: async ({ start, shell, signal }) => {
      const [one, other] = [await start('one.1'), await start('other.1')];
      const written = Promise.withResolvers<void>();
      const controller = new AbortController();
      const time = longTime();
      const script = `echo of-one > /tmp/mine && echo of-one > check-note && echo of-one > /dev/shm/mine && echo written && sleep ${time}`;
      const holding = shell(one, script, {
        signal: AbortSignal.any([signal, controller.signal]),
        onOutput: onStdout((soFar) => {
          if (soFar === 'written\n') written.resolve();
        }),
      });
      await Promise.race([written.promise, holding]);
      const looking =
        'echo ran; cat /tmp/mine check-note /dev/shm/mine; cat /proc/[0-9]*/cmdline | tr "\\0" " "; echo end';
      const seen = await shell(other, looking).finally(() => controller.abort());
      const held = await holding;
      requireThat(held.reason === 'cancelled' && held.stdout === 'written\n', printed(held));
      requireThat(seen.stdout.startsWith('ran\n') && seen.stdout.endsWith('end\n'), printed(seen));
      requireThat(!seen.stdout.includes('of-one') && !seen.stdout.includes(`sleep ${time}`), printed(seen));
    },
  },
  {
    sentence: 'two sandboxes do not reach each other: no port of loopback, no abstract Unix socket',
    needs: isolates,
    run: async ({ backend, start, shell, signal }) => {
      const [one, other] = [await start('one.1'), await start('other.1')];
      const others = closedNetworks(backend, other);
      for (const [index, network] of closedNetworks(backend, one).entries()) {
        const name = `trialgate-${randomBytes(6).toString('hex')}`;
        const ending = new AbortController();
        const heard = Promise.withResolvers<string>();
        const holding = shell(one, '', {
          argv: ['python3', '-c', listen(name)],
          network,
          signal: AbortSignal.any([signal, ending.signal]),
          onOutput: onStdout((soFar) => {
            if (/^port \d+\n/m.test(soFar)) heard.resolve(soFar);
          }),
        });
        try {
          const said = await Promise.race([heard.promise, holding.then(printed)]);
          const port = /^port (\d+)$/m.exec(said)?.[1];
          requireThat(port !== undefined, `with the network ${network.kind} the program that listens ended: ${said}`);
          const argv = ['python3', '-c', connect(name, port ?? '')];
          const tried = await shell(other, '', { argv, network: others[index] ?? network });
          requireThat(tried.stdout === 'ran\nend\n', `with the network ${network.kind}: ${printed(tried)}`);
          ending.abort();
          const held = await holding;
          requireThat(
            held.reason === 'cancelled',
            `with the network ${network.kind} the program that listens ended before the other sandbox tried: ${printed(held)}`,
          );
        } finally {
          ending.abort();
          await holding;
        }
      }
    },
  },
  {
    sentence: 'without a network a program reaches nothing: no port of the host, no name, no address',
    needs: ({ networks }) => networks.includes('none'),
    run: async (context) => {
      await using server = await listening();
      const attempts = reach([`127.0.0.1:${server.port}`, '1.1.1.1:53', 'localhost:22', '169.254.169.254:80']);
      const result = await context.shell(await context.start(), `echo ran; ${attempts}; echo end`);
      requireThat(result.stdout.startsWith('ran\n') && result.stdout.endsWith('end\n'), printed(result));
      requireThat(!result.stdout.includes('reached'), printed(result));
    },
  },
  {
    sentence: 'with the network `gateway` a program reaches the gateway and nothing else',
    needs: ({ networks }) => networks.includes('gateway'),
    run: async (context) => {
      await using gateway = await listening('the gateway');
      await using other = await listening('another');
      const sandbox = await context.start();
      const network = { kind: 'gateway', url: `http://127.0.0.1:${gateway.port}`, folder: sandbox.root } as const;
      const script = `python3 -c "import urllib.request;print(urllib.request.urlopen('http://127.0.0.1:${gateway.port}/x',timeout=10).read().decode())"; ${reach([`127.0.0.1:${other.port}`, '1.1.1.1:53', '169.254.169.254:80'])}`;
      const result = await context.shell(sandbox, script, { network });
      requireThat(result.stdout.includes('the gateway'), printed(result));
      requireThat(!result.stdout.includes('reached'), printed(result));
      requireThat(result.gatewayFailures === 0, `it counts ${result.gatewayFailures} failures of the gateway`);
    },
  },
  {
    sentence: HOST_NETWORK,
    needs: ({ networks }) => networks.includes('host'),
    run: async (context) => {
      await using server = await listening();
      const { stdout } = await context.shell(await context.start(), reach([`127.0.0.1:${server.port}`]), {
        network: { kind: 'host' },
      });
      requireThat(stdout.includes('reached'), stdout);
    },
  },
  {
    sentence:
      'files that the worker gave are there, and files that a program wrote come back: binary, empty, with any name',
    run: async ({ backend, start, shell, signal }) => {
      const sandbox = await start();
      const bytes = randomBytes(100_000);
      await mkdir(join(sandbox.work, 'ünï/täg'), { recursive: true });
      await writeFile(join(sandbox.work, 'ünï/täg/b in'), bytes);
      await writeFile(join(sandbox.work, '-rf'), '');
      await writeFile(join(sandbox.work, 'check-run.sh'), '#!/bin/bash\necho ran', { mode: 0o755 });
      await backend.copyIn(sandbox, signal);
      const result = await shell(
        sandbox,
        'cp "ünï/täg/b in" check-out && ./check-run.sh && test -e ./-rf && : > check-empty && printf x > $\'new\\nline\'',
      );
      requireThat(result.exitCode === 0 && result.stdout === 'ran\n', printed(result));
      await backend.copyOut(sandbox, signal);
      requireThat(bytes.equals(await readFile(join(sandbox.work, 'check-out'))), 'a binary file differs');
      requireThat((await readFile(join(sandbox.work, 'check-empty'), 'utf8')) === '', 'an empty file differs');
      requireThat(
        (await readFile(join(sandbox.work, 'new\nline'), 'utf8')) === 'x',
        'a file with a line break in its name differs',
      );
    },
  },
  {
    sentence: '100,000 files and a file of 1 GB go in and come back',
    isLarge: true,
    run: async ({ backend, start, shell, signal }) => {
      const sandbox = await start();
      const big = { ...LIMITS, storageMb: 4096, seconds: 300, memoryMb: 2048 };
      const script =
        'mkdir check-folder && cd check-folder && mkdir many && cd many && for d in $(seq 100); do mkdir $d && (cd $d && seq 1000 | split -l 1 -a 3 - f); done; cd .. && head -c 1000000000 /dev/urandom > big && sha256sum big';
      const result = await shell(sandbox, script, { limits: big });
      requireThat(result.exitCode === 0, printed(result));
      await backend.copyOut(sandbox, signal);
      // The files that came back are put into another sandbox.
      const second = await start('second.1');
      await copyFiles(
        join(sandbox.work, 'check-folder'),
        join(second.work, 'check-folder'),
        { bytes: 2 ** 31, entries: 200_000 },
        { signal },
      );
      await backend.copyIn(second, signal);
      const counted = await shell(second, 'cd check-folder && find many -type f | wc -l; sha256sum big', {
        limits: big,
      });
      const [count, sum = ''] = counted.stdout.split('\n');
      requireThat(count === '100000' && result.stdout === `${sum}\n`, printed(counted));
    },
  },
  {
    sentence: 'links that a program leaves are never followed by the host',
    run: async ({ backend, start, shell, home, signal }) => {
      const secret = join(home, 'outside');
      await writeFile(secret, 'kept');
      const sandbox = await start();
      const result = await shell(
        sandbox,
        `mkdir check-folder && cd check-folder && ln -s ${secret} link && ln -s ${home} folder && ln -s / root && mkfifo pipe && echo made`,
      );
      requireThat(result.stdout === 'made\n', printed(result));
      await backend.copyOut(sandbox, signal);
      await backend.destroy(home, sandbox.name);
      requireThat((await readFile(secret, 'utf8')) === 'kept', 'the target of a link was changed');
    },
  },
  {
    sentence:
      'a sandbox is removed whole, whatever a program left: closed folders, deep folders, names that are not UTF-8',
    run: async ({ backend, start, shell, home }) => {
      const sandbox = await start();
      const script =
        'mkdir check-folder && touch check-folder/a && chmod 0 check-folder; d=$(printf "%0200d" 0); for i in $(seq 40); do mkdir $d && cd $d; done; cd; touch $\'\\xff\\xfe\'; chmod 0 .; echo made';
      const result = await shell(sandbox, script);
      requireThat(result.stdout === 'made\n', printed(result));
      await backend.destroy(home, sandbox.name);
      const isThere = await access(sandbox.root).then(
        () => true,
        () => false,
      );
      requireThat(!isThere, 'its folder is still there');
      requireThat(
        (await backend.find(home)).every(({ name }) => name !== sandbox.name),
        'it is still found',
      );
    },
  },
  {
    sentence: 'a sandbox of the same name starts empty',
    run: async ({ start, shell }) => {
      const first = await shell(await start('same.1'), 'touch check-left /tmp/check-left && echo made');
      requireThat(first.stdout === 'made\n', printed(first));
      const second = await shell(await start('same.1'), 'ls -A . /tmp && echo end');
      requireThat(second.stdout.endsWith('end\n'), printed(second));
      requireThat(!second.stdout.includes('check-left'), printed(second));
    },
  },
  {
    sentence: 'a sandbox is found by its name while it is there, and removing it twice does nothing',
    run: async ({ backend, start, home }) => {
      const sandbox = await start('found.1');
      const found = (await backend.find(home)).find(({ name }) => name === sandbox.name);
      requireThat(found?.isOwnerAlive === true, 'a sandbox of this worker is not found, or its worker counts as dead');
      await backend.destroy(home, sandbox.name);
      await backend.destroy(home, sandbox.name);
    },
  },
  {
    sentence: 'removing a sandbox ends what runs in it',
    run: async (context) => {
      const { backend, home, start, shell } = context;
      const sandbox = await start();
      const up = Promise.withResolvers<'up'>();
      const time = longTime();
      const onOutput = onStdout((soFar) => {
        if (soFar === 'up\n') up.resolve('up');
      });
      const running = shell(sandbox, `echo up; sleep ${time}`, { onOutput }).catch(() => null);
      const first = await Promise.race([up.promise, running]);
      requireThat(first === 'up', 'the program did not start');
      await backend.destroy(home, sandbox.name);
      const ended = await running;
      requireThat(ended?.reason !== 'timed_out', 'the program still ran after its sandbox was removed');
      await requireNothingLeft(context, time);
    },
  },
  {
    sentence: 'arguments and names from outside are never taken for options or shell text',
    run: async ({ start, shell }) => {
      const hostile = ['-c', '$(touch /tmp/pwned)', '`id`', '; id', '--privileged', 'a\nb', '\u{1F600}', "'"];
      const result = await shell(await start(), '', {
        argv: ['python3', '-c', 'import sys,json;print(json.dumps(sys.argv[1:]))', ...hostile],
      });
      requireThat(result.stdout.trim() === asPythonJson(hostile), printed(result));
    },
  },
  {
    sentence: '16 sandboxes run at the same time, each with its own files and result',
    run: async ({ start, shell }) => {
      const results = await Promise.all(
        Array.from({ length: 16 }, async (_, index) =>
          shell(await start(`many-${index}.1`), `echo ${index} > check-n; sleep 0.5; cat check-n; exit ${index}`),
        ),
      );
      results.forEach((result, index) =>
        requireThat(result.exitCode === index && result.stdout === `${index}\n`, printed(result)),
      );
    },
  },
];

const ALLOWED_VARIABLES = [
  'PATH',
  'A',
  'PWD',
  'SHLVL',
  '_',
  'OLDPWD',
  'TRIALGATE_SANDBOX',
  'HOSTNAME',
  'container',
  'HOME',
  'TERM',
];

const asPythonJson = (values: string[]): string =>
  `[${values.map((value) => JSON.stringify(value).replace(/[^\x20-\x7e]/g, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`)).join(', ')}]`;

/** The networks in which a sandbox reaches nothing but, with `gateway`, its relay. */
const closedNetworks = ({ capabilities }: SandboxBackend, { root }: Sandbox): Network[] => [
  { kind: 'none' },
  ...(capabilities.networks.includes('gateway')
    ? [{ kind: 'gateway' as const, url: 'http://gateway.test:8700', folder: root, hosts: ['host.test'] }]
    : []),
];

/**
 * Listens on loopback and on an abstract Unix socket of this name, connects to both, and prints the port. Where one of them does not exist or does
 * not reach itself, nothing else can reach it either; the port is then 0.
 */
const listen = (name: string): string =>
  `import socket,time\nport=0\ntry:\n  t=socket.create_server(("127.0.0.1",0))\n  socket.create_connection(t.getsockname())\n  port=t.getsockname()[1]\nexcept OSError: pass\ntry:\n  u=socket.socket(socket.AF_UNIX)\n  u.bind("\\0${name}")\n  u.listen()\n  socket.socket(socket.AF_UNIX).connect("\\0${name}")\nexcept OSError: pass\nprint("port",port,flush=True)\ntime.sleep(${longTime()})`;

/** Prints `reached` for each of these to which it can connect. */
const connect = (name: string, port: string): string =>
  `import socket\nprint("ran")\nfor family,address in ((socket.AF_UNIX,"\\0${name}"),(socket.AF_INET,("127.0.0.1",${port}))):\n  try: socket.socket(family).connect(address); print("reached",address)\n  except OSError: pass\nprint("end")`;

/** Returns a script that prints `reached ADDRESS` for each address to which it can connect. */
const reach = (addresses: string[]): string =>
  addresses
    .map((address) => {
      const [host, port] = address.split(':');
      return `timeout 20 bash -c 'exec 3<>/dev/tcp/${host}/${port} && echo reached ${address}' 2>/dev/null; true`;
    })
    .join('; ');

async function listening(reply = 'hello'): Promise<{ port: number } & AsyncDisposable> {
  const server = createServer((_, response) => response.end(reply));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  return {
    port: typeof address === 'object' && address !== null ? address.port : 0,
    [Symbol.asyncDispose]: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

/** Returns a number of seconds that no other process sleeps for, longer than every limit of time here: a program that only its limit ended says so. */
const longTime = (): string => String(randomInt(100_000, 1_000_000_000));

/** Requires that no process of this host sleeps for so many seconds. */
async function requireNothingLeft({ signal }: Context, seconds: string): Promise<void> {
  for (let round = 0; round < 100; round += 1) {
    if (!(await isSlept(seconds))) return;
    await sleep(100, undefined, { signal });
  }
  requireThat(false, `a process of it still runs (sleep ${seconds})`);
}

/** Returns true when a process of this host sleeps for so many seconds. */
export async function isSlept(seconds: string): Promise<boolean> {
  for (const pid of listPids()) {
    const line = await readFile(`/proc/${pid}/cmdline`, 'latin1').catch(() => '');
    if (line === `sleep\0${seconds}\0`) return true;
  }
  return false;
}
