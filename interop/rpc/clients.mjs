// The two programs under test, each one process that does any number of runs.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { program } from '../lib/program.mjs'

const here = new URL('.', import.meta.url).pathname

const programs = {
  java: { argv: ['java', '-XX:TieredStopAtLevel=1', here + 'Client.java'], probe: ['java', '--list-modules'], has: /jdk\.compiler/, hint: 'install a JDK of version 17 or later' },
  python: { argv: ['python3', here + 'client.py'], probe: ['python3', '--version'], has: /Python 3\.\d\d/, hint: 'install Python 3.10 or later' },
}

/** Why a program cannot be run here; in CI that is a failure. */
export function missing(name) {
  const { probe, has, hint } = programs[name]
  const r = spawnSync(probe[0], probe.slice(1), { encoding: 'utf8' })
  if (has.test(r.stdout ?? '')) return false
  assert(process.env.CI !== 'true', `${name}: ${hint}`)
  return hint
}

/** Starts a program: .run({urls, params, slow}) resolves to the state that a run led it to. */
export function start(name) {
  const { run, stop } = program(programs[name].argv)
  return { run: (job) => run({ slow: 0, ...job }), stop }
}
