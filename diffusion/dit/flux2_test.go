package dit_test

import "testing"

func TestFlux2(t *testing.T) {
	g := readGolden(t, "flux2")
	m, _ := open(t, "flux2")
	want, _ := g.floats(t, "output")
	requireNear(t, want, run(t, m, nil, g.samples), 1e-4, 1e-5)
}
