//! The kinds of log item, their codes and names, and what a malformed item is reported as.

macro_rules! kinds {
    ($($name:ident = $code:literal $text:literal),* $(,)?) => {
        /// Kinds of item.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u16)]
        #[expect(missing_docs, reason = "the names are the format's own")]
        pub enum ItemKind { $($name = $code),* }

        impl ItemKind {
            /// From the first 16 bits of an item.
            pub const fn from_code(code: u16) -> Option<Self> {
                match code { $($code => Some(Self::$name),)* _ => None }
            }

            /// Name as the tools of XFS print it.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text),* }
            }
        }
    };
}

kinds! {
    Efi = 0x1236 "EFI", Efd = 0x1237 "EFD", Inode = 0x123b "INODE", Buf = 0x123c "BUF",
    Dquot = 0x123d "DQUOT", QuotaOff = 0x123e "QUOTAOFF", Icreate = 0x123f "ICREATE",
    Rui = 0x1240 "RUI", Rud = 0x1241 "RUD", Cui = 0x1242 "CUI", Cud = 0x1243 "CUD",
    Bui = 0x1244 "BUI", Bud = 0x1245 "BUD", Attri = 0x1246 "ATTRI", Attrd = 0x1247 "ATTRD",
    Xmi = 0x1248 "XMI", Xmd = 0x1249 "XMD", EfiRt = 0x124a "EFI_RT", EfdRt = 0x124b "EFD_RT",
    RuiRt = 0x124c "RUI_RT", RudRt = 0x124d "RUD_RT", CuiRt = 0x124e "CUI_RT",
    CudRt = 0x124f "CUD_RT",
}

/// An item that is not what its kind has to be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} item: {problem}")]
pub struct BadItem {
    /// Its kind, as far as known.
    pub kind: &'static str,
    /// What is wrong.
    pub problem: String,
}

impl BadItem {
    /// A bad item of a known kind.
    pub fn new(kind: ItemKind, problem: impl Into<String>) -> Self {
        Self { kind: kind.name(), problem: problem.into() }
    }
}

/// The first word of an item: its kind, and the number of its regions.
pub(super) fn first_word(kind: ItemKind, regions: usize) -> [u8; 4] {
    let ([a, b], [c, d]) = ((kind as u16).to_le_bytes(), (regions as u16).to_le_bytes());
    [a, b, c, d]
}
