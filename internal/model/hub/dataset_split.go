package hub

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/lorafuse/lorafuse/internal/suggest"
)

// cardFile is the description of a dataset, which may begin with its configurations.
const cardFile = "README.md"

// configuration is a configuration of a dataset: its splits in order, and their files.
type configuration struct {
	name      string
	byDefault bool
	splits    []string
	files     map[string][]string
}

// add appends files to a split.
func (c *configuration) add(split string, files ...string) {
	if c.files == nil {
		c.files = map[string][]string{}
	}
	if c.files[split] == nil {
		c.splits = append(c.splits, split)
	}
	c.files[split] = append(c.files[split], files...)
}

// chooseSplit returns the files of a split. parts come from [parseDataset].
func chooseSplit(repo repository, files []string, card string, parts []string) ([]string, error) {
	all, err := configurations(repo, files, card)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, c := range all {
		names = append(names, c.name)
	}
	split, chosen := "train", (*configuration)(nil)
	byName := func(name string) *configuration {
		if i := slices.Index(names, name); i >= 0 {
			return &all[i]
		}
		return nil
	}
	switch len(parts) {
	case 2:
		if chosen, split = byName(parts[0]), parts[1]; chosen == nil {
			return nil, fmt.Errorf("%w: %s: configuration: %s", ErrDataset, repo, suggest.Expected(parts[0], names))
		}
	case 1:
		if chosen = byName(parts[0]); chosen == nil || len(all) == 1 && chosen.files[parts[0]] != nil {
			split, chosen = parts[0], nil
		}
	}
	if chosen == nil {
		i := slices.IndexFunc(all, func(c configuration) bool { return c.byDefault })
		if i < 0 {
			i = slices.Index(names, "default")
		}
		switch {
		case i >= 0:
			chosen = &all[i]
		case len(all) == 1:
			chosen = &all[0]
		default:
			return nil, fmt.Errorf("%w: %s has the configurations %s; name one, such as %s:%s:%s", ErrDataset, repo, some(names), repo, names[0], split)
		}
	}
	if found := chosen.files[split]; len(found) > 0 {
		return found, nil
	}
	return nil, fmt.Errorf("%w: %s: split: %s; name one, such as %s:%s", ErrDataset, repo, suggest.Expected(split, chosen.splits), repo, chosen.splits[0])
}

// some lists names, but not too many of them.
func some(names []string) string {
	const most = 12
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return suggest.Or(names)
}

// configurations returns the configurations of a dataset, at least one, each with a split.
func configurations(repo repository, files []string, card string) ([]configuration, error) {
	data := slices.DeleteFunc(slices.Clone(files), func(name string) bool {
		base := path.Base(name)
		return !dataFile.MatchString(name) || strings.HasPrefix(base, ".") || slices.Contains([]string{"dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json", "requirements.txt"}, base)
	})
	slices.Sort(data)
	_, name, _ := strings.Cut(repo.id, "/")
	script := name + ".py"
	if repo.revision == convertedRevision {
		return converted(repo, data)
	}
	if !slices.Contains(files, script) {
		script = ""
	}
	if all, err := declared(repo, data, card); err != nil || len(all) > 0 {
		return all, err
	}
	if script != "" {
		return nil, fmt.Errorf("%w: %s needs its script %s, which is not run: use the files that the Hub converted, %s@%s", ErrDataset, repo, script, repo.id, convertedRevision)
	}
	if len(data) == 0 {
		return nil, fmt.Errorf("%w: %s has no files of rows (JSON, CSV, Parquet or text)", ErrDataset, repo)
	}
	c := configuration{name: "default"}
	for _, f := range data {
		if split := splitOf(f); split != "" {
			c.add(split, f)
		}
	}
	if len(c.splits) == 0 { // of no names, all is for training
		c.add("train", data...)
	}
	return []configuration{c}, nil
}

// splitNames matches the name of a split in the path of a file, as package datasets of Hugging Face does.
var splitNames = regexp.MustCompile(`(?i)(?:^|[-_./ 0-9])(train|training|test|testing|eval|evaluation|validation|valid|val|dev)(?:[-_./ 0-9]|$)`)

// splitOf returns the split that the path of a file names, or "".
func splitOf(file string) string {
	m := splitNames.FindStringSubmatch(file)
	if m == nil {
		return ""
	}
	switch split := strings.ToLower(m[1]); split {
	case "training":
		return "train"
	case "testing", "eval", "evaluation":
		return "test"
	case "valid", "val", "dev":
		return "validation"
	default:
		return split
	}
}

// converted returns the configurations of the branch of converted files: config/split/0000.parquet.
func converted(repo repository, data []string) (all []configuration, err error) {
	for _, f := range data {
		parts := strings.Split(f, "/")
		if len(parts) != 3 {
			continue
		}
		i := slices.IndexFunc(all, func(c configuration) bool { return c.name == parts[0] })
		if i < 0 {
			i = len(all)
			all = append(all, configuration{name: parts[0]})
		}
		all[i].add(strings.TrimPrefix(parts[1], "partial-"), f)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%w: the Hub has not converted %s to Parquet", ErrDataset, repo.id)
	}
	return all, nil
}

// declaration is a configuration in the card of a dataset.
type declaration struct {
	Name    string    `yaml:"config_name"`
	Default bool      `yaml:"default"`
	Dir     string    `yaml:"data_dir"`
	Files   yaml.Node `yaml:"data_files"`
}

// declared returns the configurations that the card declares, or none.
func declared(repo repository, data []string, card string) (all []configuration, err error) {
	head, found := strings.CutPrefix(strings.ReplaceAll(card, "\r\n", "\n"), "---\n")
	if !found {
		return nil, nil
	}
	head, _, _ = strings.Cut(head, "\n---")
	var front struct {
		Configs []declaration `yaml:"configs"`
	}
	if err := yaml.Unmarshal([]byte(head), &front); err != nil {
		return nil, fmt.Errorf("%w: %s: %s: %s", ErrDataset, repo, cardFile, strings.ReplaceAll(err.Error(), "\n", " "))
	}
	for _, d := range front.Configs {
		c := configuration{name: d.Name, byDefault: d.Default}
		patterns, err := d.patterns()
		if err != nil {
			return nil, fmt.Errorf("%w: %s: %s: configuration %s: %w", ErrDataset, repo, cardFile, d.Name, err)
		}
		for _, p := range patterns {
			match := globPattern(path.Join(d.Dir, p.path))
			for _, f := range data {
				switch split := p.split; {
				case !match.MatchString(f):
				case split != "":
					c.add(split, f)
				case splitOf(f) != "":
					c.add(splitOf(f), f)
				default:
					c.add("train", f)
				}
			}
		}
		if len(c.splits) > 0 {
			all = append(all, c)
		}
	}
	return all, nil
}

// filePattern is a pattern of files, and their split if it is declared.
type filePattern struct{ split, path string }

// patterns returns the patterns of files: one, a list of them, a mapping from splits to patterns, or a list of mappings
// with split and path.
func (d declaration) patterns() (all []filePattern, err error) {
	var add func(split string, n *yaml.Node) error
	add = func(split string, n *yaml.Node) error {
		switch n.Kind {
		case yaml.ScalarNode:
			all = append(all, filePattern{split, n.Value})
			return nil
		case yaml.SequenceNode:
			for _, item := range n.Content {
				if err := add(split, item); err != nil {
					return err
				}
			}
			return nil
		case yaml.MappingNode:
			entry := map[string]yaml.Node{}
			if err := n.Decode(&entry); err != nil {
				return err
			}
			if files, has := entry["path"]; has {
				name := entry["split"]
				return add(name.Value, &files)
			}
			for _, name := range slices.Sorted(maps.Keys(entry)) {
				files := entry[name]
				if err := add(name, &files); err != nil {
					return err
				}
			}
			return nil
		}
		return fmt.Errorf("data_files: line %d is no pattern of files", n.Line)
	}
	if d.Files.Kind == 0 {
		return []filePattern{{"", "**"}}, nil
	}
	return all, add("", &d.Files)
}

// globPattern returns the expression of a pattern with *, ?, [sets] and **.
func globPattern(pattern string) *regexp.Regexp {
	var b strings.Builder
	for i := 0; i < len(pattern); i++ {
		switch rest := pattern[i:]; {
		case strings.HasPrefix(rest, "**/"):
			b.WriteString("(?:.*/)?")
			i += 2
		case strings.HasPrefix(rest, "**"):
			b.WriteString(".*")
			i++
		case rest[0] == '*':
			b.WriteString("[^/]*")
		case rest[0] == '?':
			b.WriteString("[^/]")
		case rest[0] == '[' && strings.Contains(rest, "]"):
			end := strings.IndexByte(rest, ']')
			b.WriteString("[" + strings.ReplaceAll(rest[1:end], `\`, `\\`) + "]")
			i += end
		default:
			b.WriteString(regexp.QuoteMeta(rest[:1]))
		}
	}
	re, err := regexp.Compile("^" + b.String() + "$")
	if err != nil { // an invalid set matches itself alone
		return regexp.MustCompile("^" + regexp.QuoteMeta(pattern) + "$")
	}
	return re
}
