export * from './client.js';
export { SkeinAgent, type SkeinAgentConfig } from './agent.js';
