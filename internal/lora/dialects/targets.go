package dialects

import (
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/lora"
)

// targets returns the target_modules and exclude_modules of PEFT that select exactly
// the chosen modules of a model: the shortest unique endings of their names.
func targets(model lora.Model, chosen []string) (names, exclude []string) {
	taken := map[string][]string{} // endings of the names of other modules, and of their parents
	for _, m := range model.Modules {
		for i, c := range m.Name {
			if c == '.' {
				ends(m.Name[:i], func(end string) bool { taken[end] = append(taken[end], ""); return true })
			}
		}
		if !slices.Contains(chosen, m.Name) {
			ends(m.Name, func(end string) bool { taken[end] = append(taken[end], m.Name); return true })
		}
	}
	for _, name := range chosen {
		best := name
		ends(name, func(end string) bool {
			if end[0] >= '0' && end[0] <= '9' || len(taken[end]) > 0 {
				return true
			}
			best = end
			return false
		})
		names = append(names, best)
		exclude = append(exclude, taken[best]...)
	}
	for _, list := range []*[]string{&names, &exclude} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	return names, slices.DeleteFunc(exclude, func(s string) bool { return s == "" })
}

// ends calls yield with name's last part, its last two, and so on, while that is true.
func ends(name string, yield func(string) bool) {
	for i := len(name); i > 0; {
		i = strings.LastIndexByte(name[:i], '.')
		if !yield(name[i+1:]) || i < 0 {
			return
		}
	}
}
