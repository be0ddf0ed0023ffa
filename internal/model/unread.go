package model

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/lorafuse/lorafuse/tensor"
)

// ErrUnread reports a tensor of the checkpoint that would change the model's output, but is
// not read by the architecture.
var ErrUnread = errors.New("tensor is not read")

// Unread is a tensor of a checkpoint that the model does not read.
type Unread struct {
	Name string
	// Why is the reason, or empty if none is known.
	Why string
	// Expected reports that checkpoints of the architecture have such tensors, and that
	// nothing is lost without them. [Model.UnreadLine] leaves them out.
	Expected bool
}

// Skip names tensors that an architecture does not read, although its checkpoints have them.
type Skip struct {
	Names    *regexp.Regexp
	Why      string
	Expected bool // see [Unread]
}

// Skipper is a [Family] that lists such tensors, except the ones common to all families.
type Skipper interface{ Skips(c *Config) []Skip }

// VisionTower is the reason that text models give for not reading the tensors of a vision
// tower.
const VisionTower = "vision tower"

// otherHead is the reason for not reading the tensors of a head.
const otherHead = "head of another task"

// skips lists the tensors that are skipped in all families.
var skips = []Skip{
	{Names: regexp.MustCompile(`(^|\.)rotary_emb\.inv_freq$`), Why: "rotary frequencies are computed from config.json"},
	{Names: regexp.MustCompile(`(^|\.)position_ids$`), Why: "positions are computed"},
	{Names: regexp.MustCompile(`(^|\.)(visual|vision_tower|vision_model|multi_modal_projector|embed_vision)\.`), Why: VisionTower},
	{Names: regexp.MustCompile(`(^|\.)image_newline$`), Why: VisionTower},
	{Names: regexp.MustCompile(`(^|\.)(audio_tower|embed_audio)\.`), Why: "audio tower"},
	{Names: regexp.MustCompile(`(^|\.)mtp(_[a-z]+)*\.`), Why: "multi-token prediction"},
	{Names: regexp.MustCompile(`^(language_model\.)?(lm_head|cls|predictions|qa_outputs|classifier|score)\.`), Why: otherHead},
	{Names: activationScales, Why: "scale of activations, which are not rounded", Expected: true},
	{Names: regexp.MustCompile(`(^|\.)pooler\.`), Why: "pooler of another task"},
}

// findUnread finds the tensors that the model does not read. It returns ErrUnread for the bias
// or norm of a layer that the model reads, unless the values are neutral: 0 for a bias, and
// the initial value for a norm.
func (m *Model) findUnread() error {
	read := map[string]bool{}
	modules := map[string]bool{} // modules with at least one tensor that is read
	for _, name := range m.used {
		for _, stored := range m.Stored(name) {
			read[stored] = true
			modules[parent(stored)] = true
		}
	}
	for name := range modules { // add the modules that contain them
		for name != "" && !modules[parent(name)] {
			name = parent(name)
			modules[name] = true
		}
	}
	var own []Skip
	if s, ok := m.Config.Family.(Skipper); ok {
		own = s.Skips(m.Config)
	}
	for _, name := range m.set.Names() {
		if read[name] {
			continue
		}
		u, err := m.unreadTensor(name, modules, own)
		if err != nil {
			return err
		}
		m.unread = append(m.unread, u)
	}
	return nil
}

// unreadTensor returns why a tensor is not read. own are the skips of the family.
func (m *Model) unreadTensor(name string, modules map[string]bool, own []Skip) (Unread, error) {
	if (strings.TrimPrefix(name, wrappedText+".") == headWeight || name == m.inFile(headWeight)) && m.Config.TiedEmbeddings && m.Config.Part == AsSaved && m.logits {
		return m.unreadHead(name)
	}
	if s, ok := skipOf(name, own); ok { // such as the norm of a head, which is none of the body
		return Unread{name, s.Why, s.Expected}, nil
	}
	neutral, what, ok := m.neutral(name, modules)
	if !ok {
		return m.skipped(name), nil
	}
	values, err := m.floats(name)
	if err != nil {
		return Unread{}, err
	}
	for i, x := range values {
		if x != neutral {
			return Unread{}, fmt.Errorf("%w: %q is a %s that no layer of %s has with this config.json: found %v at element %d, expected %v everywhere; check architectures and the keys that give layers a bias or a norm",
				ErrUnread, name, what, m.Config.Architecture, x, i, neutral)
		}
	}
	return Unread{Name: name, Why: fmt.Sprintf("%s of %vs", what, neutral)}, nil
}

// skipped returns why a tensor that belongs to no layer is not read.
func (m *Model) skipped(name string) Unread {
	if s, ok := skipOf(name, skips); ok {
		return Unread{name, s.Why, s.Expected}
	}
	if layer, ok := numberOf(name); ok && m.Config.Layers > 0 && layer >= m.Config.Layers {
		return Unread{Name: name, Why: fmt.Sprintf("num_hidden_layers is %d", m.Config.Layers)}
	}
	return Unread{Name: name}
}

// headWeight is the name of the weight of a language head.
const headWeight = "lm_head.weight"

// skipOf returns the first of known that matches a tensor.
func skipOf(name string, known []Skip) (Skip, bool) {
	i := slices.IndexFunc(known, func(s Skip) bool { return s.Names.MatchString(name) })
	if i < 0 {
		return Skip{}, false
	}
	return known[i], true
}

// neutral returns the value at which an unread bias or norm of a layer has no effect; ok is
// false for other tensors.
func (m *Model) neutral(name string, modules map[string]bool) (value float32, what string, ok bool) {
	module, param := parent(name), name[strings.LastIndexByte(name, '.')+1:]
	isBias := param == "bias" || param == "beta" || strings.HasSuffix(param, "_bias")
	switch {
	case isBias && modules[module]:
		return 0, "bias", true
	case !isNorm(module) || !modules[parent(module)]:
		return 0, "", false
	case isBias:
		return 0, "bias", true
	case param != "weight" && param != "gamma":
		return 0, "", false
	}
	if d, ok := m.Config.Family.(interface{ normOrigin() float64 }); ok {
		return float32(1 - d.normOrigin()), "norm", true
	}
	return 1, "norm", true
}

// isNorm reports whether a module is a norm by its name: q_norm, LayerNorm, ln_1, norm2.
func isNorm(module string) bool {
	last := strings.ToLower(module[strings.LastIndexByte(module, '.')+1:])
	return strings.Contains(last, "norm") || strings.HasPrefix(last, "ln_") || strings.HasPrefix(last, "ln") && strings.Trim(last[2:], "0123456789") == ""
}

// unreadHead compares the weight of a head with that of the embedding that it is tied to. As
// transformers has it, two that differ are not tied.
func (m *Model) unreadHead(name string) (Unread, error) {
	for _, module := range m.modules {
		if !module.InputEmbedding {
			continue
		}
		embedding := m.inFile(module.Name + weightSuffix)
		same, err := m.equal(name, embedding)
		if err != nil {
			return Unread{}, err
		}
		if !same {
			return Unread{}, fmt.Errorf("%w: %q differs from %q, and tie_word_embeddings of config.json makes them one; set it to false if the head has its own weight", ErrUnread, name, embedding)
		}
	}
	return Unread{name, "copy of the embedding", true}, nil
}

// untieStored unties the head of a model that is tied by default if the checkpoint stores a
// head with other values.
func (m *Model) untieStored() error {
	head, embedding := m.inFile(headWeight), m.inFile("model."+wrappedText+".embed_tokens.weight")
	if !m.Config.tiedUnlessStored || !m.set.Has(head) || !m.set.Has(embedding) {
		return nil
	}
	same, err := m.equal(head, embedding)
	m.Config.TiedEmbeddings = same
	return err
}

// equal reports whether two tensors of the checkpoint have the same shape and values.
func (m *Model) equal(a, b string) (same bool, err error) {
	x, err := m.view(a)
	if err != nil {
		return false, err
	}
	y, err := m.view(b)
	if err != nil || !slices.Equal(x.Shape, y.Shape) {
		return false, err
	}
	if x.DType != y.DType {
		u, err := m.floats(a)
		if err != nil {
			return false, err
		}
		v, err := m.floats(b)
		return slices.Equal(u, v), err
	}
	err = x.WithBytes(func(data []byte) error {
		return y.WithBytes(func(other []byte) error { same = bytes.Equal(data, other); return nil })
	})
	return same, err
}

// floats reads a tensor.
func (m *Model) floats(name string) ([]float32, error) {
	v, err := m.set.Lookup(name)
	if err != nil {
		return nil, err
	}
	d, err := tensor.ParseDType(v.DType.String())
	if err != nil || !d.IsFloat() {
		return nil, fmt.Errorf("%w: %q has elements of type %v, expected floats", ErrUnread, name, v.DType)
	}
	var x []float32
	err = v.WithBytes(func(data []byte) error {
		x, err = tensor.Tensor{DType: d, Shape: v.Shape, Data: data}.Float32s()
		return err
	})
	return x, err
}

// parent returns the name of the module that contains a tensor or module.
func parent(name string) string {
	i := strings.LastIndexByte(name, '.')
	return name[:max(i, 0)]
}

// layerNumber finds the number of the layer that a tensor is in.
var layerNumber = regexp.MustCompile(`(?:^|\.)(?:layers|h|encoder\.layer)\.([0-9]+)\.`)

func numberOf(name string) (int, bool) {
	found := layerNumber.FindStringSubmatch(name)
	if found == nil {
		return 0, false
	}
	n, err := strconv.Atoi(found[1])
	return n, err == nil
}

// Unread lists the tensors of the checkpoint that the model does not read.
func (m *Model) Unread() []Unread { return m.unread }

// UnreadLine returns a one-line description of the tensors that the model does not read,
// without expected ones and ones whose reason is in except. It is empty if there are none.
func (m *Model) UnreadLine(except ...string) string {
	unread := slices.DeleteFunc(slices.Clone(m.unread), func(u Unread) bool {
		return u.Expected || slices.Contains(except, u.Why) && u.Why != ""
	})
	if len(unread) == 0 {
		return ""
	}
	tensors := "tensors of the checkpoint are"
	if len(unread) == 1 {
		tensors = "tensor of the checkpoint is"
	}
	return fmt.Sprintf("%s: %d %s not read: %s", filepath.Clean(m.Dir), len(unread), tensors, UnreadByReason(unread))
}

// UnreadByReason lists the first tensors with each reason, and how many more there are. Tensors
// without a known reason come first.
func UnreadByReason(unread []Unread) string {
	var order []string
	byReason := map[string][]string{}
	for _, u := range unread {
		if byReason[u.Why] == nil {
			order = append(order, u.Why)
		}
		byReason[u.Why] = append(byReason[u.Why], u.Name)
	}
	slices.SortStableFunc(order, func(a, b string) int { return min(len(a), 1) - min(len(b), 1) })
	const most = 3
	var parts []string
	for _, why := range order {
		names := byReason[why]
		text := strings.Join(names[:min(most, len(names))], ", ") + andMore(max(0, len(names)-most))
		if why != "" {
			text += " (" + why + ")"
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}
