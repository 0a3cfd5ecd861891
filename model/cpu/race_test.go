//go:build race

package cpu

// raceEnabled: the race detector makes sync.Pool forget at random.
const raceEnabled = true
