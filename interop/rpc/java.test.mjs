// A Java program: java.net.http and readLine.
import { suite } from './suite.mjs'

suite('java', {
  played: (name) => ['text', 'tools', 'approval', 'failure', 'cancel', 'unicode'].includes(name),
  sentences: ['unicode'],
  controls: ['text', 'failure'],
})
