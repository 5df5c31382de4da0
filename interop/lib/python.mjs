// Whether programs in Python can be run here.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'

/** Why a program in Python cannot be run here; in CI that is a failure. */
export function noPython() {
  const has = /Python 3\.\d\d/.test(spawnSync('python3', ['--version'], { encoding: 'utf8' }).stdout ?? '')
  assert(has || process.env.CI !== 'true', 'install Python 3.10 or later')
  return has ? false : 'install Python 3.10 or later'
}
