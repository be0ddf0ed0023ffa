package tokenizer

import "strings"

// unicode16 lists the additions of Unicode 15.1 and 16 to the categories, as ranges of a
// character class. The regexp engine of Hugging Face tokenizers knows them; Go's tables may
// not.
var unicode16 = map[string]string{
	"L": "\u1C89-\u1C8A\uA7CB-\uA7CD\uA7DA-\uA7DC\U000105C0-\U000105F3\U00010D4A-\U00010D65\U00010D6F-\U00010D85" +
		"\U00010EC2-\U00010EC4\U00011380-\U00011389\U0001138B\U0001138E\U00011390-\U000113B5\U000113B7\U000113D1\U000113D3" +
		"\U00011BC0-\U00011BE0\U00013460-\U000143FA\U00016100-\U0001611D\U00016D40-\U00016D6C\U00018CFF\U0001E5D0-\U0001E5ED" +
		"\U0001E5F0\U0002EBF0-\U0002EE5D",
	"Lu": "\u1C89\uA7CB-\uA7CC\uA7DA\uA7DC\U00010D50-\U00010D65",
	"Ll": "\u1C8A\uA7CD\uA7DB\U00010D70-\U00010D85",
	"Lm": "\U00010D4E\U00010D6F\U00016D40-\U00016D42\U00016D6B-\U00016D6C",
	"Lo": "\U000105C0-\U000105F3\U00010D4A-\U00010D4D\U00010D4F\U00010EC2-\U00010EC4\U00011380-\U00011389\U0001138B\U0001138E" +
		"\U00011390-\U000113B5\U000113B7\U000113D1\U000113D3\U00011BC0-\U00011BE0\U00013460-\U000143FA\U00016100-\U0001611D" +
		"\U00016D43-\U00016D6A\U00018CFF\U0001E5D0-\U0001E5ED\U0001E5F0\U0002EBF0-\U0002EE5D",
	"M": "\u0897\U00010D69-\U00010D6D\U00010EFC\U000113B8-\U000113C0\U000113C2\U000113C5\U000113C7-\U000113CA\U000113CC-\U000113D0" +
		"\U000113D2\U000113E1-\U000113E2\U00011F5A\U0001611E-\U0001612F\U0001E5EE-\U0001E5EF",
	"N": "\U00010D40-\U00010D49\U000116D0-\U000116E3\U00011BF0-\U00011BF9\U00016130-\U00016139\U00016D70-\U00016D79" +
		"\U0001CCF0-\U0001CCF9\U0001E5F1-\U0001E5FA",
	"P": "\u1B4E-\u1B4F\u1B7F\U00010D6E\U000113D4-\U000113D5\U000113D7-\U000113D8\U00011BE1\U00016D6D-\U00016D6F\U0001E5FF",
	"S": "\u2427-\u2429\u2FFC-\u2FFF\u31E4-\u31E5\u31EF\U00010D8E-\U00010D8F\U0001CC00-\U0001CCEF\U0001CD00-\U0001CEB3" +
		"\U0001F8B2-\U0001F8BB\U0001F8C0-\U0001F8C1\U0001FA89\U0001FA8F\U0001FABE\U0001FAC6\U0001FADC\U0001FADF\U0001FAE9" +
		"\U0001FBCB-\U0001FBEF",
}

// modernized adds the newer characters to the categories in expr. A negated
// category within a class keeps its older meaning.
func modernized(expr string) string {
	var b strings.Builder
	inClass := false
	for i := 0; i < len(expr); {
		c := expr[i]
		if c != '\\' || i+1 == len(expr) {
			inClass = c == '[' || inClass && c != ']'
			b.WriteByte(c)
			i++
			continue
		}
		name, _, closed := strings.Cut(expr[i+2:], "}")
		newer := unicode16[strings.TrimPrefix(name, "{")]
		switch {
		case !closed || newer == "" || !strings.HasPrefix(name, "{"):
			b.WriteString(expr[i : i+2])
			i += 2
			continue
		case expr[i+1] == 'p' && inClass:
			b.WriteString(`\p` + name + "}" + newer)
		case expr[i+1] == 'p':
			b.WriteString(`[\p` + name + "}" + newer + "]")
		case expr[i+1] == 'P' && !inClass:
			b.WriteString(`[^\p` + name + "}" + newer + "]")
		default:
			b.WriteString(expr[i : i+3+len(name)])
		}
		i += 3 + len(name)
	}
	return b.String()
}
