//go:build !amd64 || noasm

package feature

const missing = "feature: no assembly in this build"

func vectors() bool { return false }

func (l *line) classifyVector([]byte) bool { panic(missing) }

func (l *line) splitVector() { panic(missing) }

func (l *line) countVector() { panic(missing) }

func (l *line) lookVector() bool { panic(missing) }

func sumVector([]uint64, uint64, *[64]uint64, uint64, uint64, int, uint64) ([]uint64, uint64) {
	panic(missing)
}

func (l *line) hashVector([]uint32, int, int) int { panic(missing) }

func (l *line) edgesVector([]uint32) { panic(missing) }

func fmix32Vector([]uint32, uint32) { panic(missing) }
