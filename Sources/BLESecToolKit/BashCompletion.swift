/// A script with which bash completes a tool's commands, operands, options and options' values.
///
/// The function `_TOOL_spec` has everything that depends on the tool. The other functions differ
/// between tools only in their names.
struct BashCompletion {
    let text: String

    init(_ program: Program) {
        let name = program.name
        let function = "_" + String(name.map { $0 == "-" ? "_" : $0 })
        let commands = program.commandsForCompletion
        // For each prefix of a command's words, the words that may come next. The prefix is empty
        // for the first word.
        var nextWords: [(prefix: String, words: [String])] = []
        let pages = commands.map(\.words) + program.guideWords.map { [$0] }
        for path in commands.map(\.words) + pages.map({ ["help"] + $0 }) {
            for depth in path.indices {
                let prefix = path[..<depth].joined(separator: " ")
                let index = nextWords.firstIndex { $0.prefix == prefix } ?? nextWords.count
                if index == nextWords.count { nextWords.append((prefix, [])) }
                if !nextWords[index].words.contains(path[depth]) {
                    nextWords[index].words.append(path[depth])
                }
            }
        }
        let nextWordCases = nextWords.map {
            "    '\($0.prefix)') words='\($0.words.joined(separator: " "))' ;;\n"
        }
        let commandCases = commands.map { path, command in
            "    '\(path.joined(separator: " "))') \(Self.spec(command)) ;;\n"
        }
        text = """
            # Completes the words of \(name) in bash. `\(name) completion bash` made this script.

            # Sets what may follow the command words $1: the next command words, the options, the
            # kinds of the options' values, and the kinds of the operands.
            \(function)_spec() {
              words='' options='' values='' operands=''
              case $1 in
            \(nextWordCases.joined())    *) ;;
              esac
              case $1 in
            \(commandCases.joined())    *) options='\(Self.flags([]))' ;;
              esac
            }

            # Sets `kind` to the kind of the value that the option $1 takes; fails if it takes none.
            \(function)_kind() {
              local entry
              for entry in $values; do
                [[ ${entry%%=*} == "$1" ]] && kind=${entry#*=} && return
              done
              return 1
            }

            # Offers each line of standard input, with the prefix $1, if the result begins with
            # $current. Quotes characters of the line that the shell would interpret.
            \(function)_lines() {
              local line
              while IFS= read -r line; do
                [[ $1$line == "$current"* ]] || continue
                printf -v line %q "$line"
                COMPREPLY+=("$1$line")
              done
            }

            # Splits $1 into words as the shell does. Sets `typed` to the words without their quotes and
            # backslashes, and `raw` to the last word as it is typed.
            \(function)_split() {
              local char quote='' word=''
              local -i index has_word=0
              typed=() raw=''
              for ((index = 0; index < ${#1}; index++)); do
                char=${1:index:1}
                if [[ -z $quote && $char == [[:space:]] ]]; then
                  ((has_word)) && typed+=("$word")
                  word='' raw='' has_word=0
                  continue
                fi
                has_word=1
                raw+=$char
                case $quote$char in
                  \\\\ | \\"\\\\)
                    index+=1
                    # Between double quotes, most characters do not need a backslash, and keep it.
                    [[ -z $quote || ${1:index:1} == ['"\\$`'] ]] || word+=$char
                    raw+=${1:index:1}
                    word+=${1:index:1}
                    ;;
                  "'" | '"') quote=$char ;;
                  "''" | '""') quote='' ;;
                  *) word+=$char ;;
                esac
              done
              typed+=("$word")
            }

            \(function)_peers() {
              \(function)_lines "$1" < <(blesec peers list 2>/dev/null </dev/null | cut -d ' ' -f 1)
            }

            # Offers the words of kind $1 that begin with $current.
            \(function)_offer() {
              local word
              # In a word with quotes or backslashes, bash completes names of files only.
              ((is_quoted)) && [[ $1 != files && $1 != folders ]] && return
              case $1 in
                files)
                  mapfile -t COMPREPLY < <(compgen -f -- "$current")
                  compopt -o filenames 2>/dev/null
                  ;;
                folders)
                  mapfile -t COMPREPLY < <(compgen -d -- "$current")
                  compopt -o filenames 2>/dev/null
                  ;;
                adapters)
                  for word in /sys/class/bluetooth/hci*; do
                    word=${word##*/}
                    [[ $word != *'*' && $word == "$current"* ]] && COMPREPLY+=("$word")
                  done
                  ;;
                peers) \(function)_peers '' ;;
                endpoints)
                  case $current in
                    # After a colon, the shell does not replace `~`.
                    unix:~* | unix-seqpacket:~*) ;;
                    unix:* | unix-seqpacket:*)
                      \(function)_lines "${current%%:*}:" < <(compgen -f -- "${current#*:}")
                      ;;
                    peer:*) \(function)_peers peer: ;;
                    *)
                      word='l2cap: unix: unix-seqpacket: service: peer:'
                      mapfile -t COMPREPLY < <(compgen -W "$word" -- "$current")
                      compopt -o nospace 2>/dev/null
                      ;;
                  esac
                  ;;
                words:*)
                  word=${1#words:}
                  mapfile -t COMPREPLY < <(compgen -W "${word//,/ }" -- "$current")
                  ;;
              esac
            }

            \(function)() {
              local command='' current word kind next head raw
              local words options values operands
              local -a typed kinds
              local -i index operand_count=0 options_ended=0 awaits_value=0 is_quoted=0
              COMPREPLY=()
              # The line is split here, since bash's own words also end at colons and equals signs.
              \(function)_split "${COMP_LINE:0:COMP_POINT}"
              current=${typed[${#typed[@]} - 1]}
              if [[ $raw == *[\\"\\'\\\\]* ]]; then
                # Bash replaces $2, and adds quotes itself. If $2 is only a part of the word, nothing is
                # offered.
                [[ $raw == "$2" || $raw == [\\"\\']"$2" ]] || return 0
                is_quoted=1
                current=$2
              fi
              \(function)_spec ''
              for ((index = 1; index < ${#typed[@]} - 1; index++)); do
                word=${typed[index]}
                if ((awaits_value)); then
                  awaits_value=0
                elif [[ -n $words && " $words " == *" $word "* ]]; then
                  command=${command:+$command }$word
                  \(function)_spec "$command"
                elif ((!options_ended)) && [[ $word == -- ]]; then
                  options_ended=1
                elif ((!options_ended)) && [[ $word == -* ]]; then
                  [[ $word != *=* ]] && \(function)_kind "$word" && awaits_value=1
                else
                  operand_count+=1
                fi
              done
              if ((awaits_value)); then
                \(function)_kind "${typed[${#typed[@]} - 2]}"
                \(function)_offer "$kind"
              elif ((!options_ended)) && [[ $current == --*=* ]]; then
                \(function)_kind "${current%%=*}" || return 0
                head=${current%%=*}=
                current=${current#*=}
                \(function)_offer "$kind"
                COMPREPLY=("${COMPREPLY[@]/#/$head}")
                current=$head$current
              elif ((!options_ended)) && [[ $current == -* ]]; then
                mapfile -t COMPREPLY < <(compgen -W "$options" -- "$current")
              elif [[ -n $words ]] && ((operand_count == 0)); then
                mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
              else
                read -ra kinds <<<"$operands"
                # After the last operand nothing is offered, unless that operand may be repeated.
                [[ ${kinds[*]: -1} == *+ ]] || kinds+=(nothing)
                next=${kinds[operand_count < ${#kinds[@]} ? operand_count : ${#kinds[@]} - 1]}
                \(function)_offer "${next%+}"
              fi
              ((is_quoted)) && return 0
              # Bash replaces only what follows the last colon or equals sign.
              head=''
              for word in : =; do
                [[ $COMP_WORDBREAKS == *$word* && $current == *$word* ]] || continue
                next=${current%"${current##*"$word"}"}
                ((${#next} > ${#head})) && head=$next
              done
              [[ -n $head ]] && COMPREPLY=("${COMPREPLY[@]#"$head"}")
              return 0
            }

            complete -F \(function) \(name)

            """
    }

    /// The shell assignments for a command in `_TOOL_spec`.
    private static func spec(_ command: Command) -> String {
        let values = command.options.filter { $0.valueName != nil }.flatMap { option in
            option.names.map { "\($0)=\(option.completion.word)" }
        }
        let operands = command.operands.map { operand in
            // As an operand, NAME is a remembered peer. As an option's value, it may be a new name.
            let isPeer = operand.contains("NAME")
            let kind = isPeer ? Completion.peers : Completion(named: operand)
            return kind.word + (operand.hasSuffix("...") ? "+" : "")
        }
        return "options='\(flags(command.options))' values='\(values.joined(separator: " "))'"
            + " operands='\(operands.joined(separator: " "))'"
    }

    private static func flags(_ options: [Option]) -> String {
        (options + [.help, .version]).flatMap(\.names).joined(separator: " ")
    }
}

extension Option {
    /// The name, and the short name if there is one.
    fileprivate var names: [String] { [name] + (short.map { ["-\($0)"] } ?? []) }
}

extension Completion {
    /// The name of the kind in the script.
    fileprivate var word: String {
        switch self {
        case .nothing: "nothing"
        case .words(let words): "words:" + words.joined(separator: ",")
        case .files: "files"
        case .folders: "folders"
        case .adapters: "adapters"
        case .peers: "peers"
        case .endpoints: "endpoints"
        }
    }
}
