import { TrialgateError } from '../../core/errors.ts';
import type { Deployment } from '../config/schema.ts';

/** A gateway process: its component's name and its address. */
export type OwnGateway = { name: string; port: number; url: string };

export const LOOPBACK = '127.0.0.1';

/**
 * Returns the names of a deployment's gateways and the ports that the configuration gives them. 0 means any free port.
 * @throws TrialgateError when a port would be above 65535
 */
export function gatewayPorts({
  gateway_port: first,
  gateways,
}: Pick<Deployment, 'gateway_port' | 'gateways'>): { name: string; wanted: number }[] {
  if (first + gateways - 1 > 65_535)
    throw new TrialgateError(
      'bad_input',
      `${gateways} gateways from port ${first} on go past port 65535: choose a lower gateway_port, or 0`,
    );
  return Array.from({ length: gateways }, (_, i) => ({
    name: i === 0 ? 'gateway' : `gateway-${i + 1}`,
    wanted: first && first + i,
  }));
}

/** True for the name of a gateway's component. */
export const isGateway = (component: string): boolean => /^gateway(-\d+)?$/.test(component);
