package conformance

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/ir"
)

// Support returns a Markdown table of the composites that each device runs itself. It counts the cases of this package:
// all, none, or a number of them. The other cases are decomposed.
func Support(t testing.TB, names []string, devices []backend.Device) string {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "| composite | %s |\n|---|%s\n", strings.Join(names, " | "), strings.Repeat("---|", len(names)))
	for _, op := range ir.Ops() {
		if !op.IsComposite() {
			continue
		}
		fmt.Fprintf(&b, "| %v |", op)
		for _, dev := range devices {
			own, total := claimed(t, dev, op)
			switch own {
			case total:
				b.WriteString(" yes |")
			case 0:
				b.WriteString(" no |")
			default:
				fmt.Fprintf(&b, " %d of %d |", own, total)
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// claimed counts the cases of op, and the ones that the device runs itself.
func claimed(t testing.TB, dev backend.Device, op ir.Op) (own, total int) {
	t.Helper()
	for _, c := range cases() {
		if c.op != op {
			continue
		}
		s := c.set(t)
		for v := range s.g.Nodes {
			n := &s.g.Nodes[v]
			if n.Op != op {
				continue
			}
			types := make([]ir.Type, len(n.In))
			for i, x := range n.In {
				types[i] = s.g.Type(x)
			}
			total++
			if dev.Supports(op, n.Attr, types) {
				own++
			}
		}
	}
	return own, total
}
