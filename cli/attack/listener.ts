import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';

/** The text by which the programs in `programs/` know that this listener answered. */
const MARK = 'trialgate-outside';
const HOST = '127.0.0.1';

/** The addresses that the attacks on the network try to reach. */
export type Outside = { tcp: string; udp: string; metadata: string[] };

const METADATA = ['169.254.169.254:80', 'metadata.google.internal:80', '100.100.100.200:80'];

/** Listens on this machine's loopback, where no sandbox may reach, over TCP and UDP. */
export async function openListener(): Promise<{ outside: Outside } & AsyncDisposable> {
  const { server, address: tcp } = await serve((_, response) => void response.end(MARK));
  const datagrams = createSocket('udp4');
  datagrams.on('message', (_, from) => datagrams.send(MARK, from.port, from.address));
  datagrams.bind(0, HOST);
  await once(datagrams, 'listening');
  return {
    outside: { tcp, udp: `${HOST}:${datagrams.address().port}`, metadata: METADATA },
    [Symbol.asyncDispose]: async () => {
      datagrams.close();
      await close(server);
    },
  };
}

/** Stands where the gateway is, and answers every call with 503: the attacks need no model. */
export async function openGateway(): Promise<{ url: string } & AsyncDisposable> {
  const { server, address } = await serve((_, response) => void response.writeHead(503).end());
  return { url: `http://${address}`, [Symbol.asyncDispose]: () => close(server) };
}

async function serve(answer: Parameters<typeof createServer>[1]): Promise<{ server: Server; address: string }> {
  const server = createServer(answer).listen(0, HOST);
  await once(server, 'listening');
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('the listener has no port');
  return { server, address: `${HOST}:${address.port}` };
}

async function close(server: Server): Promise<void> {
  server.closeAllConnections();
  server.close();
  await once(server, 'close');
}
